# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Grafana's HTTP API, as far as its administrator's password is concerned, and the Secret of its chart.

Grafana counts failed logins: five for one user within five minutes, and the user is locked out for as long, with the
right password, too, and with the same answer. So nothing here guesses: the password that is most likely right is tried
first, and no password twice.
https://grafana.com/docs/grafana/latest/developers/http_api/user/
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Any, Optional

from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks.answers import (
    Kind,
    described,
    kind_of,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import (
    Absent,
    BadInput,
    Forbidden,
    RecoveryError,
    Unreadable,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes import reading
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.client import (
    KubernetesClient,
    path_of,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.power.http import Reply
from ansible_collections.mission_control.job_recovery.plugins.module_utils.web import Account, Site, account, json_of

# Where the chart keeps the account that it generated; options of both modules.
OPTIONS: dict[str, Any] = {
    "namespace": {"type": "str", "default": "prometheus"},
    "secret": {"type": "str", "default": "kube-prometheus-stack-grafana", "no_log": False},  # a name
    "user_key": {"type": "str", "default": "admin-user", "no_log": False},
    "password_key": {"type": "str", "default": "admin-password", "no_log": False},
    "kubeconfig": {"type": "str", "default": ""},
    "context": {"type": "str", "default": ""},
    "request_timeout": {"type": "int", "default": 10},
}
LOGIN = "/login"
HEALTH = "/api/health"
_USER = "/api/user"
_PASSWORD = "/api/user/password"  # noqa: S105 (a path)
_LOCKED = "if it should be right, wait five minutes: Grafana locks a user out after five wrong ones"


@dataclass(frozen=True)
class Health:
    """What Grafana tells of itself: its version (may be hidden), and whether its database answers."""

    version: str
    database: str


def generated_account(client: KubernetesClient, params: dict[str, Any]) -> Account:
    """User and password that the chart generated.

    Raises:
        Absent: no such Secret, or not with these keys. Unreadable: its values are no text. Forbidden and kin.
    """
    name = "%s/%s" % (params["namespace"], params["secret"])
    thing = client.find(path_of("v1", "secrets", params["namespace"], params["secret"]))
    if thing is None:
        raise Absent("there is no Secret %s" % name, "name the Secret of your Grafana, and its namespace")
    data = reading.part(thing, "data")
    missing = [key for key in (params["user_key"], params["password_key"]) if not reading.text(data, key)]
    if missing:
        raise Absent("the Secret %s has no %s" % (name, " and no ".join(missing)), "name the right keys")
    try:
        user, password = (
            base64.b64decode(data[params[key]], validate=True).decode("utf-8") for key in ("user_key", "password_key")
        )
    except (binascii.Error, UnicodeDecodeError):
        raise Unreadable("the Secret %s holds no text" % name, "look who wrote it") from None
    return account("the Secret %s" % name, user, password)


def health(grafana: Site) -> Health:
    """Ask Grafana how it is.

    Raises:
        Unreadable: something else answers (said what). Unreachable and kin.
    """
    reply = grafana.ask("GET", HEALTH)
    told = json_of(reply)
    if told is None or "database" not in told:
        raise _strange(grafana, HEALTH, reply)
    version = reading.printable(told.get("version") or "version hidden", 40)
    return Health(version, reading.printable(told["database"], 40))


def accepts(grafana: Site, who: Account) -> bool:
    """Whether Grafana knows this user with this password. A no counts towards the lock.

    Raises:
        Forbidden: Grafana takes no password at all. Unreadable: something else answers. Unreachable and kin.
    """
    reply = grafana.ask("GET", _USER, who)
    told = json_of(reply)
    if reply.status == 200 and told is not None and "login" in told:
        return True
    message = reading.text(told, "message") if told else ""
    if reply.status == 401 and "invalid username or password" in message.lower():
        return False
    if reply.status in (401, 403) and told is not None and message:
        raise Forbidden(
            "Grafana %s takes no user and password by its API (%s)" % (grafana.url, reading.printable(message)),
            "look at auth.basic and disable_login_form in its configuration",
        )
    raise _strange(grafana, _USER, reply)


def change_password(grafana: Site, who: Account, new: str) -> None:
    """Change the user's own password.

    Raises:
        BadInput: Grafana does not like the new one (what it says). Forbidden: the old one is wrong, or the account is
        kept elsewhere. Unreadable, Unreachable and kin; after a time-out nobody knows whether it was changed.
    """
    body = {"oldPassword": who.password, "newPassword": new, "confirmNew": new}
    reply = grafana.ask("PUT", _PASSWORD, who, body=body)
    if reply.status == 200:
        return
    told = json_of(reply)
    if told is None or not reading.text(told, "message"):
        raise _strange(grafana, _PASSWORD, reply)
    said = reading.printable(reading.text(told, "message"))
    for secret in (who.password, new):
        said = said.replace(secret, "***")
    if reply.status in (401, 403):
        raise Forbidden("Grafana %s does not let %s change the password: %s" % (grafana.url, ascii(who.user), said))
    raise BadInput("Grafana %s refuses the new password: %s" % (grafana.url, said), "choose another one")


def neither(grafana: Site, user: str) -> RecoveryError:
    """The error where no password that is known is right."""
    return Forbidden(
        "Grafana %s accepts neither the new password of %s nor the present one that is known"
        % (grafana.url, ascii(user)),
        "give the present one, or reset it by `grafana cli admin reset-admin-password` in Grafana's pod; " + _LOCKED,
    )


def _strange(grafana: Site, path: str, reply: Reply) -> RecoveryError:
    kind = kind_of(grafana, path, reply)
    advice = {
        Kind.NO_ROUTE: "look at the Ingress' host and path, and at root_url and serve_from_sub_path of Grafana",
        Kind.TO_TLS: "give the address with https://",
        Kind.TLS_PORT: "give the address with https://",
        Kind.CHALLENGE: "the Ingress asks for a password of its own; give an address without",
        Kind.NO_BACKEND: "look at Grafana's pods and its Service's endpoints",
        Kind.BACKEND_FAILED: "look at Grafana's pods and its Service's endpoints",
    }
    return Unreadable(
        "Grafana %s: %s does not answer as Grafana does: %s" % (grafana.url, path, described(grafana, path, reply)),
        advice.get(kind, "look who answers there"),
    )


def login_page(grafana: Site) -> Optional[str]:
    """What is wrong with the login page; None where it is Grafana's.

    Raises:
        Unreachable and kin.
    """
    reply = grafana.ask("GET", LOGIN, headers={"Accept": "text/html"})
    if kind_of(grafana, LOGIN, reply) is Kind.PAGE and b"grafana" in reply.body.lower():
        return None
    return str(_strange(grafana, LOGIN, reply))
