# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module `loki_check`: is Loki's API reached through its Ingress with credentials, and only with them.

Loki has no authentication of its own: the Ingress (or the chart's gateway) in front of it asks for a password. With
several tenants Loki wants the header X-Scope-OrgID and answers 401 `no org id` without it, which looks like a protected
API and is none: whoever reaches that answer can write the header. So every question here carries the tenant.
https://grafana.com/docs/loki/latest/operations/multi-tenancy/
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any, Mapping, Optional

from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks.answers import (
    Kind,
    described,
    kind_of,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks.model import (
    FAILED,
    PASSED,
    UNKNOWN,
    WARNING,
    Check,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import (
    BadInput,
    RecoveryError,
    Unreachable,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.power.http import Reply, Untrusted
from ansible_collections.mission_control.job_recovery.plugins.module_utils.web import (
    OPTIONS,
    Account,
    Site,
    account,
    json_of,
    site,
    text_of,
)

SPEC: dict[str, Any] = {
    "argument_spec": {
        **OPTIONS,
        "user": {"type": "str", "required": True},
        "password": {"type": "str", "required": True, "no_log": True},
        "tenant": {"type": "str", "default": ""},
    },
    "supports_check_mode": True,
}

LABELS = "/loki/api/v1/labels"
_NO_TENANT = "no org id"


@dataclass(frozen=True)
class Answer:
    """What came of one question: an answer, or why there was none (`trouble`)."""

    kind: Optional[Kind]
    found: str
    text: str = ""
    labels: Optional[int] = None  # how many label names Loki gave; None = that was no answer of Loki's
    trouble: Optional[RecoveryError] = None

    @property
    def of_loki(self) -> bool:
        """Whether Loki itself answered: whatever is before it let the question through."""
        no_tenant = self.kind in (Kind.UNAUTHORIZED, Kind.CHALLENGE) and self.text.strip() == _NO_TENANT
        return self.labels is not None or no_tenant


_Rule = tuple[str, str]  # status and hint

_NAME_IT = "look at the Ingress' host and paths (kubectl get ingress -A): /loki/api must lead to Loki"
_BEHIND = "the Ingress answers and Loki does not: look at Loki's pods and its Service's endpoints"
_OPEN = "let the Ingress ask for a password (auth-type basic and auth-secret); until then anybody reads all logs"

# By kind of answer, what it means where no, or wrong, credentials were sent.
_STRANGER: Mapping[Kind, _Rule] = {
    Kind.CHALLENGE: (PASSED, ""),
    Kind.UNAUTHORIZED: (WARNING, "it refuses without asking for Basic credentials, which programs send"),
    Kind.FORBIDDEN: (WARNING, "it refuses by something else than a password, such as the address of who asks"),
    Kind.TO_PAGE: (WARNING, "a login page is for people; programs need an Ingress with auth-type basic"),
    Kind.PAGE: (WARNING, "a login page is for people; programs need an Ingress with auth-type basic"),
    Kind.GIVEN: (UNKNOWN, "something answers without credentials and it is not Loki: " + _NAME_IT),
    Kind.TO_TLS: (UNKNOWN, "give the address with https://"),
    Kind.TLS_PORT: (UNKNOWN, "give the address with https://"),
    Kind.NO_ROUTE: (UNKNOWN, _NAME_IT),
    Kind.BUSY: (UNKNOWN, "too many requests: try again later"),
    Kind.NO_BACKEND: (UNKNOWN, _BEHIND + "; ingress-nginx answers so, too, where the auth-secret is missing"),
    Kind.BACKEND_FAILED: (FAILED, "the question went on to Loki without a password: " + _OPEN),
    Kind.OTHER: (UNKNOWN, "look at the Ingress controller's log"),
}
# And where the site's own credentials were sent.
_OURS: Mapping[Kind, _Rule] = {
    Kind.CHALLENGE: (FAILED, "user or password is wrong, or the Ingress' auth-secret holds another one"),
    Kind.UNAUTHORIZED: (FAILED, "who refuses does not ask for Basic credentials: look at what stands before Loki"),
    Kind.FORBIDDEN: (FAILED, "the credentials are known and not allowed here: look at what the account may do"),
    Kind.TO_PAGE: (FAILED, "a login page is for people; make an Ingress for programs with auth-type basic"),
    Kind.PAGE: (FAILED, "a web page answers in place of Loki's API: " + _NAME_IT),
    Kind.GIVEN: (FAILED, "something answers and it is not Loki: " + _NAME_IT),
    Kind.TO_TLS: (FAILED, "give the address with https://"),
    Kind.TLS_PORT: (FAILED, "give the address with https://"),
    Kind.NO_ROUTE: (FAILED, _NAME_IT),
    Kind.BUSY: (UNKNOWN, "too many requests: try again later"),
    Kind.NO_BACKEND: (FAILED, _BEHIND + "; ingress-nginx answers so, too, where the auth-secret is missing"),
    Kind.BACKEND_FAILED: (FAILED, _BEHIND),
    Kind.OTHER: (FAILED, "look at Loki's and the Ingress controller's log"),
}


def run(params: dict[str, Any], _check_mode: bool) -> dict[str, Any]:
    """The module: `{changed: false, checks: [...]}`. Asks three times and writes nothing.

    Raises:
        BadInput: an address, user, password or tenant that HTTP cannot carry. Unreadable: the CA's file.
    """
    loki = site("Loki", params, "/loki/api/v1")
    ours = account("Loki", params["user"], params["password"])
    tenant = params["tenant"]
    if not tenant.isprintable():
        raise BadInput("Loki: the tenant holds a control character")
    without = ask(loki, None, tenant)
    wrong = ask(loki, Account(ours.user, secrets.token_urlsafe(12)), tenant)
    checks = [
        tls_check(loki, without, params["validate_certs"]),
        closed_check(without, wrong),
        access_check(ask(loki, ours, tenant), tenant),
    ]
    return {"changed": False, "checks": [check.as_dict() for check in checks]}


def ask(loki: Site, who: Optional[Account], tenant: str) -> Answer:
    """Ask for the label names of the last hours, the cheapest question that only Loki answers."""
    try:
        reply = loki.ask("GET", LABELS, who, {"X-Scope-OrgID": tenant} if tenant else None)
    except RecoveryError as exc:
        return Answer(None, str(exc), trouble=exc)
    return Answer(kind_of(loki, LABELS, reply), described(loki, LABELS, reply), text_of(reply), _labels(reply))


def tls_check(loki: Site, answer: Answer, verified: bool) -> Check:
    """Are the credentials sent to the right server, and unreadable on the way."""
    if not loki.server.tls:
        status, found, hint = WARNING, "%s: no TLS" % loki.url, "give the Ingress a certificate, and use https://"
    elif isinstance(answer.trouble, Untrusted):
        status, found, hint = FAILED, str(answer.trouble), "give its authority in ca_file"
    elif answer.trouble is not None:
        status, found, hint = UNKNOWN, str(answer.trouble), "look whether the Ingress controller runs"
    elif not verified:
        status, found, hint = WARNING, "%s: not verified" % loki.url, "give its authority in ca_file, and verify it"
    else:
        status, found, hint = PASSED, "%s: verified" % loki.url, ""
    return Check("loki_tls", "Loki's certificate", "HTTPS with a certificate that is trusted", found, status, hint)


def closed_check(without: Answer, wrong: Answer) -> Check:
    """Is a stranger refused: without credentials, and with a password that nobody has."""
    status, hint = _of_stranger(without)
    found = "without credentials: %s" % without.found
    if status == PASSED:
        status, hint = _of_stranger(wrong)
        found += "; with a wrong password: %s" % wrong.found
    return Check(
        "loki_closed", "Loki is closed to strangers", "HTTP 401 without and with wrong credentials", found, status, hint
    )


def access_check(ours: Answer, tenant: str) -> Check:
    """Do the site's credentials open Loki."""
    status, hint = _of_ours(ours, tenant)
    found = ours.found if ours.labels is None else "Loki answers, %d label names" % ours.labels
    return Check("loki_access", "Loki answers to us", "HTTP 200 of Loki's with the credentials", found, status, hint)


def _of_stranger(answer: Answer) -> _Rule:
    if answer.of_loki:
        return FAILED, _OPEN
    if answer.kind is None:
        return UNKNOWN, "nothing was answered, so nobody knows"
    return _STRANGER[answer.kind]


def _of_ours(answer: Answer, tenant: str) -> _Rule:
    if answer.labels:
        return PASSED, ""
    if answer.labels == 0:
        what = "tenant %s is right" % ascii(tenant) if tenant else "Loki has several tenants and wants one named"
        return WARNING, "no log of the last hours is there: look whether %s, and whether anything is collected" % what
    if answer.of_loki:
        return FAILED, "Loki has several tenants: name one (X-Scope-OrgID)"
    if answer.kind is None:
        return (FAILED if isinstance(answer.trouble, Untrusted) else UNKNOWN), _next_step(answer.trouble)
    return _OURS[answer.kind]


def _next_step(trouble: Optional[RecoveryError]) -> str:
    if isinstance(trouble, Untrusted):
        return "nothing was sent; give its authority in ca_file"
    return "look whether the Ingress controller runs" if isinstance(trouble, Unreachable) else "look who answers there"


def _labels(reply: Reply) -> Optional[int]:
    """How many label names Loki tells (none at all is `{"status": "success"}`); None where this is not Loki."""
    told = json_of(reply)
    if reply.status != 200 or told is None or told.get("status") != "success":
        return None
    names = told.get("data")
    return len(names) if isinstance(names, list) else 0 if names is None else None
