# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module `grafana_check`: can people log in to Grafana, with a password of their own, and who may read the first.

The chart generates the administrator's password and keeps it in a Secret for ever: whoever may read that Secret, or may
start a pod beside it, is Grafana's administrator until the password is changed.
"""

from __future__ import annotations

from typing import Any, Mapping, Optional, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils import grafana as api
from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks.model import (
    FAILED,
    PASSED,
    UNKNOWN,
    WARNING,
    Check,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import (
    RecoveryError,
    Unreachable,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.access import (
    Rights,
    Subject,
    Wish,
    read_rights,
    who_can,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.client import KubernetesClient
from ansible_collections.mission_control.job_recovery.plugins.module_utils.power.http import Untrusted
from ansible_collections.mission_control.job_recovery.plugins.module_utils.web import (
    OPTIONS,
    Account,
    Site,
    account,
    site,
)

SPEC: dict[str, Any] = {
    "argument_spec": {
        **OPTIONS,
        **api.OPTIONS,
        "password": {"type": "str", "no_log": True},
        "readers": {"type": "list", "elements": "str", "default": []},
    },
    "supports_check_mode": True,
}

READ = "reads the Secret"
MOUNT = "starts pods beside it"
_SHOWN = 6


def run(params: dict[str, Any], _check_mode: bool) -> dict[str, Any]:
    """The module: `{changed: false, checks: [...], readers: [...]}`. Changes nothing.

    Raises:
        BadInput: an address or a password that HTTP cannot carry. Unreadable: the CA's file.
    """
    grafana = site("Grafana", params, api.LOGIN)
    if params["password"]:
        account("Grafana", "checked", params["password"])
    client = KubernetesClient(params["kubeconfig"], params["context"], params["request_timeout"])
    try:
        found = readers(client, params)
        checks = [
            login_check(grafana, params["validate_certs"]),
            password_check(grafana, client, params),
            readers_check(found, params["readers"], "%s/%s" % (params["namespace"], params["secret"])),
        ]
    finally:
        client.close()
    shown = [] if isinstance(found, RecoveryError) else found
    return {"changed": False, "checks": [check.as_dict() for check in checks], "readers": shown}


def login_check(grafana: Site, verified: bool) -> Check:
    """Does the login page come, from a Grafana whose database answers."""
    status, hint = PASSED, ""
    try:
        wrong = api.login_page(grafana)
        told = api.health(grafana) if wrong is None else None
    except RecoveryError as exc:
        found, hint = str(exc), "look whether the Ingress controller and Grafana run"
        status = FAILED if isinstance(exc, Untrusted) or not isinstance(exc, Unreachable) else UNKNOWN
    else:
        if told is None:
            status, found, hint = FAILED, str(wrong), "open the address in a browser, and look at Grafana's Ingress"
        elif told.database != "ok":
            found, status = "Grafana %s, database: %s" % (told.version, told.database), FAILED
            hint = "look at Grafana's log"
        else:
            found = "%s%s answers (Grafana %s)" % (grafana.url, api.LOGIN, told.version)
            if not grafana.server.tls or not verified:
                status = WARNING
                found += ", without TLS" if not grafana.server.tls else ", certificate not verified"
                hint = "give the Ingress a certificate, and its authority in ca_file"
    return Check("grafana_login", "Grafana's login page", "it answers through the Ingress", found, status, hint)


def password_check(grafana: Site, client: KubernetesClient, params: Mapping[str, Any]) -> Check:
    """Is the administrator's password still the generated one."""
    try:
        generated = api.generated_account(client, dict(params))
        status, found, hint = _judge_password(grafana, generated, params["password"])
    except RecoveryError as exc:
        status, found, hint = UNKNOWN, str(exc), "look at the Secret and at Grafana"
    return Check(
        "grafana_password", "Grafana's administrator", "a password that is not the generated one", found, status, hint
    )


def _judge_password(grafana: Site, generated: Account, ours: Optional[str]) -> tuple[str, str, str]:
    """Status, what was found, hint. The site's own password is tried first: a right one counts no failed login."""
    change = "change it with the playbook grafana.yml (job_recovery_grafana_password)"
    if ours and ours == generated.password:
        return WARNING, "the site's password for %s is the generated one" % ascii(generated.user), change
    if ours and api.accepts(grafana, Account(generated.user, ours)):
        return PASSED, "the site's own password", ""
    if api.accepts(grafana, generated):
        return WARNING, "%s has the generated password" % ascii(generated.user), change
    if ours:
        return (
            FAILED,
            "neither the site's nor the generated password of %s" % ascii(generated.user),
            ("somebody changed it: correct job_recovery_grafana_password"),
        )
    return PASSED, "the generated one is not accepted any more", ""


def readers(client: KubernetesClient, params: Mapping[str, Any]) -> Any:
    """Who can get at the Secret: a list of plain data, or the error why nobody knows."""
    try:
        return listed(read_rights(client, params["namespace"]), params["secret"])
    except RecoveryError as exc:
        return exc


def listed(rights: Rights, secret: str) -> list[dict[str, Any]]:
    """Everybody who may read a Secret, and who may start pods in its namespace, which can mount it. Pure."""
    reading_it = who_can(rights, Wish(frozenset(("get", "list", "watch")), "secrets", name=secret))
    mounting = who_can(rights, Wish(frozenset(("create",)), "pods"))
    found = [_reader(subject, READ, through) for subject, through in reading_it.items()]
    found += [_reader(subject, MOUNT, through) for subject, through in mounting.items() if subject not in reading_it]
    return found


def readers_check(found: Any, expected: Sequence[str], secret: str) -> Check:
    """Is the Secret kept from all but those that the site names, and the control plane. Pure."""
    title, required = "Who can read Grafana's Secret", "nobody but the cluster's administrators and whom the site names"
    if isinstance(found, RecoveryError):
        hint = "let somebody look who may list roles and bindings"
        return Check("grafana_secret_readers", title, required, str(found), UNKNOWN, hint)
    others = [one for one in found if not one["built_in"] and one["subject"] not in expected]
    everybody = [one for one in others if one["everybody"]]
    shown = _some(["%s %s (%s)" % (one["subject"], one["how"], ", ".join(one["through"])) for one in found])
    status = FAILED if everybody else WARNING if others else PASSED
    hint = (
        "take the right from %s, or name them in job_recovery_grafana_readers; a password that was changed makes the "
        "Secret worthless" % _some([one["subject"] for one in everybody or others])
    )
    text = "%s: %s" % (secret, shown or "nobody, by RBAC")
    return Check("grafana_secret_readers", title, required, text, status, "" if status == PASSED else hint)


def _reader(subject: Subject, how: str, through: Sequence[str]) -> dict[str, Any]:
    return {
        "subject": str(subject),
        "kind": subject.kind,
        "name": subject.name,
        "namespace": subject.namespace,
        "how": how,
        "through": list(through),
        "built_in": subject.built_in,
        "everybody": subject.everybody,
    }


def _some(items: Sequence[str]) -> str:
    rest = len(items) - _SHOWN
    return ", ".join(items[:_SHOWN]) + (" and %d more" % rest if rest > 0 else "")
