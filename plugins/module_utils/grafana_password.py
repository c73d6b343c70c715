# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module `grafana_password`: the generated password of Grafana's administrator becomes one that the site knows."""

from __future__ import annotations

from typing import Any, Optional

from ansible_collections.mission_control.job_recovery.plugins.module_utils import grafana as api
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import BadInput, Unreadable
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.client import KubernetesClient
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
        "password_file": {"type": "path", "no_log": False},
        "old_password": {"type": "str", "no_log": True},
        "user": {"type": "str", "default": ""},
    },
    "required_one_of": [("password", "password_file")],
    "mutually_exclusive": [("password", "password_file")],
    "supports_check_mode": True,
}


def run(params: dict[str, Any], check_mode: bool) -> dict[str, Any]:
    """The module: `{changed, user}`. The new password is tried first, so that a second run fails no login.

    Raises:
        BadInput: the new password is empty, the generated one, or not to Grafana's liking. Forbidden: no password that
        is known is right. Unreadable: the file, or whoever answers is no Grafana. Unreachable and kin.
    """
    grafana = site("Grafana", params, api.LOGIN)
    new = _new_password(params)
    if params["user"] and params["old_password"]:
        present, generated = account("Grafana", params["user"], params["old_password"]), None
    else:
        generated = _generated(params)
        present = account("Grafana", params["user"] or generated.user, params["old_password"] or generated.password)
    _require_another(new, generated)
    changed = _change(grafana, present, account("Grafana", present.user, new), check_mode)
    return {"changed": changed, "user": present.user}


def _change(grafana: Site, present: Account, wanted: Account, check_mode: bool) -> bool:
    if api.accepts(grafana, wanted):
        return False
    if not api.accepts(grafana, present):
        raise api.neither(grafana, present.user)
    if not check_mode:
        api.change_password(grafana, present, wanted.password)
        if not api.accepts(grafana, wanted):
            raise Unreadable(
                "Grafana %s said that the password was changed, and does not accept it" % grafana.url,
                "look whether several Grafanas with databases of their own share the address",
            )
    return True


def _generated(params: dict[str, Any]) -> Account:
    client = KubernetesClient(params["kubeconfig"], params["context"], params["request_timeout"])
    try:
        return api.generated_account(client, params)
    finally:
        client.close()


def _new_password(params: dict[str, Any]) -> str:
    path = params["password_file"]
    if not path:
        return _usable(params["password"])
    try:
        with open(path, encoding="utf-8") as handle:
            return _usable(handle.read().rstrip("\r\n"))
    except OSError as exc:
        raise Unreadable("the password's file %s: %s" % (path, exc.strerror), "give a file that exists") from exc
    except UnicodeDecodeError:
        raise Unreadable("the password's file %s: no UTF-8" % path, "write it anew") from None


def _usable(password: str) -> str:
    if not password:
        raise BadInput("the new password is empty", "give one from Vault or from a file")
    return password


def _require_another(new: str, generated: Optional[Account]) -> None:
    if generated is not None and new == generated.password:
        raise BadInput("the new password is the generated one, which the Secret shows", "choose another one")
