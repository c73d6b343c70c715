# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A user and a password for a registry, and what can be seen of them to be wrong before anybody is asked. Pure.

Only the registry knows whether a password is right. But what is cut off, quoted, ends with a newline or was never
filled in can be told by its form, and telling it saves failed logins, which some registries answer by locking out.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from typing import Any, Optional

from ansible_collections.mission_control.job_recovery.plugins.module_utils import json_text

#: NVIDIA's registries want this user, literally.
NVIDIA_USER = "$oauthtoken"
_NVIDIA_HOSTS = ("nvcr.io", "helm.ngc.nvidia.com")
_NVIDIA_KEY = re.compile(r"nvapi-[A-Za-z0-9_-]+\Z")
_NVIDIA_KEY_LENGTH = 70
#: Keys made before `nvapi-`: base64 of an id and a UUID.
_NVIDIA_OLD_KEY = re.compile(r"[a-z0-9]+:[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")
_UNFILLED = re.compile(r"\$\{?\w+\}?\Z|\{\{.*\}\}\Z|<[^>]*>\Z|%\w+%\Z", re.DOTALL)
_QUOTES = ("''", '""', "``", "\u201c\u201d", "\u2018\u2019")


@dataclass(frozen=True)
class Login:
    """Never shown: `repr` would hold the password."""

    username: str
    password: str

    def __repr__(self) -> str:
        return "Login(...)"

    @property
    def basic(self) -> str:
        """As HTTP's Basic authentication and the field `auth` of a Docker configuration carry it."""
        return base64.b64encode(("%s:%s" % (self.username, self.password)).encode("utf-8")).decode("ascii")


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong with credentials.

    Attributes:
        id: a word for programs.
        text: what it is, without any part of a secret.
        certain: it cannot work so; otherwise it is only unusual.
    """

    id: str
    text: str
    certain: bool = True


def is_nvidia(place: str) -> bool:
    """Whether a registry (or a part of one) is NVIDIA's."""
    host = place.partition("/")[0].partition(":")[0]
    return host in _NVIDIA_HOSTS or host.endswith(".nvcr.io")


def faults_of(place: str, login: Login, now: float) -> list[Fault]:
    """What is wrong with the form of credentials for a registry; certain faults first.

    Args:
        now: seconds since the epoch, for passwords that tell until when they are valid.
    """
    nvidia = is_nvidia(place)
    found = [*_user_faults(login.username, nvidia), *_password_faults(login.password, nvidia)]
    if not any(fault.certain for fault in found):
        found += _nvidia_key_faults(login.password) if nvidia else []
        found += _expiry_faults(login.password, now)
    return sorted(found, key=lambda fault: not fault.certain)


def _user_faults(username: str, nvidia: bool) -> list[Fault]:
    if not username:
        return [Fault("user_empty", "the user name is empty%s" % (_nvidia_user_hint() if nvidia else ""))]
    if nvidia and username != NVIDIA_USER:
        return [Fault("user_nvidia", "the user name is not %s%s" % (NVIDIA_USER, _nvidia_user_hint()))]
    if ":" in username:
        return [Fault("user_colon", "the user name has a colon, which ends it for every client")]
    if not username.isprintable() or username != username.strip():
        return [Fault("user_blanks", "the user name has blanks or a newline around or in it")]
    return []


def _nvidia_user_hint() -> str:
    return " (NVIDIA's registry wants it literally; in a shell or a template the $ is easily lost)"


def _password_faults(password: str, nvidia: bool) -> list[Fault]:
    if not password:
        return [Fault("password_empty", "the password is empty")]
    if password.lstrip().startswith("$ANSIBLE_VAULT;"):
        return [Fault("password_vault", "the password is still encrypted by Ansible Vault")]
    if password.endswith(("\n", "\r")):
        return [Fault("password_newline", "the password ends with a newline, which belongs to the file it came from")]
    if not password.isprintable():
        return [Fault("password_control", "the password has control characters in it")]
    faults = []
    if password != password.strip():
        faults.append(Fault("password_blanks", "the password has blanks around it", certain=nvidia))
    if len(password) > 2 and password[0] + password[-1] in _QUOTES:
        faults.append(Fault("password_quoted", "the password has quotation marks around it", certain=nvidia))
    if _UNFILLED.match(password):
        text = "the password looks like a variable or a place-holder that was never filled in"
        faults.append(Fault("password_unfilled", text, certain=nvidia))
    return faults


def _nvidia_key_faults(password: str) -> list[Fault]:
    """`nvapi-` and 64 letters, digits, `_` or `-`."""
    if password.count("nvapi-") > 1:
        return [Fault("key_twice", "the key stands in the password more than once")]
    if _NVIDIA_KEY.match(password):
        if len(password) < _NVIDIA_KEY_LENGTH:
            short = "the key has %d characters where NVIDIA's have %d: is it cut off?"
            return [Fault("key_short", short % (len(password), _NVIDIA_KEY_LENGTH), certain=False)]
        return []
    if password.startswith("nvapi-"):
        return [Fault("key_characters", "the key has characters that NVIDIA's keys never have")]
    if "nvapi-" in password:
        return [Fault("key_before", "there are other characters before the key, which begins with nvapi-")]
    decoded = _decoded(password)
    if decoded.startswith("nvapi-"):
        return [Fault("key_encoded", "the key is encoded in base64; give it as NVIDIA shows it")]
    if _NVIDIA_OLD_KEY.match(decoded):
        return [Fault("key_old", "the key is of the form that NVIDIA used before nvapi-", certain=False)]
    return [Fault("key_form", "the password is no key of NVIDIA: they begin with nvapi-")]


def _expiry_faults(password: str, now: float) -> list[Fault]:
    until = expires(password)
    if until is None:
        return []
    if until <= now:
        return [Fault("expired", "the password is a token that ended %d hours ago" % ((now - until) // 3600))]
    text = "the password is a token that ends in %d hours: what keeps it will need a new one" % ((until - now) // 3600)
    return [Fault("expires", text, certain=False)]


def expires(password: str) -> Optional[float]:
    """Until when a token is valid by its own account (epoch seconds), or None where it does not tell.

    JSON Web Tokens have `exp`; the passwords of Amazon's registry are base64 of JSON with `expiration`.
    """
    parts = password.split(".")
    claims = _json(_decoded(parts[1])) if len(parts) == 3 else _json(_decoded(password))
    value = claims.get("exp" if len(parts) == 3 else "expiration")
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _json(text: str) -> dict[str, Any]:
    try:
        read = json_text.loads(text)
    except ValueError:
        return {}
    return read if isinstance(read, dict) else {}


def _decoded(text: str) -> str:
    """What base64 (either alphabet, padded or not) holds, or the empty text."""
    plain = text.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True).decode("utf-8")
    except (binascii.Error, ValueError):
        return ""
