# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The account for a registry or a chart repository: from arguments, from a file with the password, or from Docker's."""

from __future__ import annotations

import base64
import binascii
import json
import os
import stat
from dataclasses import dataclass
from typing import Any, Mapping, Optional

from ansible_collections.mission_control.job_recovery.plugins.module_utils import json_text
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import BadInput, Unreadable

_DOCKER_HUB = "https://index.docker.io/v1/"
_HUB_HOSTS = ("docker.io", "index.docker.io", "registry-1.docker.io")


@dataclass(frozen=True)
class Account:
    """Who we are to a registry. Never shown: `repr` would hold the password."""

    user: str
    password: str

    def __repr__(self) -> str:
        return "Account(user=%r)" % self.user

    @property
    def basic(self) -> str:
        """Docker's `auth`: base64 of user, colon and password."""
        return base64.b64encode(("%s:%s" % (self.user, self.password)).encode()).decode()

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must never be shown."""
        return (self.password, self.basic)


def read(params: Mapping[str, Any], host: str) -> Optional[Account]:
    """The account that a module was given for `host` (HOST[:PORT]), or None where it was given none.

    Raises:
        BadInput: half an account, a file that others can read, or Docker's file does not know the host.
        Unreadable: a file cannot be read or is not what it should be.
    """
    if params["docker_config"]:
        return from_docker(private_text(params["docker_config"]), params["docker_config"], host)
    password = params["password"] or ""
    if params["password_file"]:
        password = private_text(params["password_file"]).rstrip("\r\n")
    if bool(params["username"]) is not bool(password):
        missing = "password" if params["username"] else "username"
        raise BadInput("the account for %s has no %s" % (host, missing), "give both or neither")
    return _checked(Account(str(params["username"]), password), host) if password else None


def from_docker(text: str, path: str, host: str) -> Account:
    """The account of `host` in a Docker config.json. Raises `Unreadable` and `BadInput`."""
    try:
        data = json_text.loads(text)
    except ValueError:
        data = None
    auths = data.get("auths") if isinstance(data, Mapping) else None
    if not isinstance(auths, Mapping):
        raise Unreadable("%s is no Docker config.json: it has no `auths`" % path)
    for name, entry in auths.items():
        if _same_host(str(name), host) and isinstance(entry, Mapping):
            return _checked(_account_of(entry, path, host), host)
    raise BadInput("%s has no account for %s" % (path, host), "log in there, or give the account otherwise")


def docker_config(host: str, account: Account) -> str:
    """A Docker config.json with this account alone. Secret."""
    name = _DOCKER_HUB if host in _HUB_HOSTS else host
    return json.dumps({"auths": {name: {"auth": account.basic}}})


def private_text(path: str) -> str:
    """The text of a file that holds a secret. Raises `BadInput` where all users can read it, and `Unreadable`."""
    try:
        with open(path, encoding="utf-8") as handle:
            if os.fstat(handle.fileno()).st_mode & stat.S_IROTH:
                raise BadInput("%s holds a secret and every user can read it" % path, "chmod 600 it")
            return handle.read()
    except (OSError, UnicodeDecodeError) as exc:
        raise Unreadable("%s: %s" % (path, getattr(exc, "strerror", None) or "no text")) from exc


def _account_of(entry: Mapping[str, Any], path: str, host: str) -> Account:
    if entry.get("username") and entry.get("password"):
        return Account(str(entry["username"]), str(entry["password"]))
    try:
        pair = base64.b64decode(str(entry.get("auth") or ""), validate=True).decode()
    except (binascii.Error, ValueError):
        pair = ""
    user, colon, password = pair.partition(":")
    if not (user and colon and password):
        raise Unreadable("%s: the entry for %s has no user and password" % (path, host), "log in there anew")
    return Account(user, password)


def _checked(account: Account, host: str) -> Account:
    """Refuse what no registry takes and what is always a mistake in copying."""
    if account.password != account.password.strip() or not account.password.isprintable():
        raise BadInput(
            "the password for %s begins or ends with a blank, or has a control character" % host, "copy it again"
        )
    if len(account.password) > 1 and account.password[0] == account.password[-1] and account.password[0] in "'\"":
        raise BadInput("the password for %s is in quotes" % host, "take the quotes away")
    if ":" in account.user:
        raise BadInput("the user name for %s has a colon, which no registry can take" % host)
    return account


def _same_host(name: str, host: str) -> bool:
    """Whether Docker's key (`https://HOST/v1/` of old, or HOST[:PORT]) is this host."""
    bare = name.partition("://")[2] or name
    bare = bare.split("/", 1)[0]
    return bare == host or (bare in _HUB_HOSTS and host in _HUB_HOSTS)
