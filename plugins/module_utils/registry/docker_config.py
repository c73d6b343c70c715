# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Docker's config.json, the content of a pull secret: read as the kubelet reads it, judged, and written. Pure.

The kubelet (pkg/credentialprovider) knows only `auths`, and of an entry only `username`, `password` and `auth`, where
`auth` wins. It takes any JSON object without complaint, so a secret that gives no credentials looks like a good one
until an image is pulled. Nothing here puts any part of a secret, or what may be one, into a text.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Mapping, Optional, Union

from ansible_collections.mission_control.job_recovery.plugins.module_utils import json_text
from ansible_collections.mission_control.job_recovery.plugins.module_utils.registry.login import (
    Fault,
    Login,
    faults_of,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.registry.reference import (
    DOCKER_HUB,
    DOCKER_HUB_KEY,
    normalise,
)

_ENTRY_FIELDS = ("auth", "username", "password", "identitytoken", "registrytoken")
_HELPERS = ("credsStore", "credHelpers")


@dataclass(frozen=True)
class Entry:
    """One registry's entry.

    Attributes:
        key: as it is written.
        place: what it is for; empty where nothing can be made of the key.
        value: the entry itself, whatever it is. Secret.
        login: what the kubelet takes from it, or None.
        faults: what is wrong with the key, with the entry, and with the form of its credentials.
    """

    key: str = field(repr=False)
    place: str
    value: Any = field(repr=False)
    login: Optional[Login]
    faults: tuple[Fault, ...]


@dataclass(frozen=True)
class Config:
    """A whole configuration.

    Attributes:
        readable: whether entries could be looked for at all.
        entries: all that were found, also where they stand in the wrong place (see `faults`).
        rest: what else is in it, by key.
        faults: what is wrong with the whole.
    """

    readable: bool
    entries: tuple[Entry, ...] = ()
    rest: Mapping[str, Any] = field(default_factory=dict, repr=False)
    faults: tuple[Fault, ...] = ()

    def all_faults(self) -> list[str]:
        """Every fault as one line, the whole's first, those of an entry with its registry."""
        lines = [fault.text for fault in self.faults]
        for entry in self.entries:
            name = entry.place or "an entry"
            lines += ["%s: %s" % (name, fault.text) for fault in entry.faults]
        return lines


def key_of(place: str) -> str:
    """The key under which every client finds a registry."""
    return DOCKER_HUB_KEY if place == DOCKER_HUB else place


def entry_of(login: Login) -> dict[str, str]:
    """An entry as `kubectl create secret docker-registry` writes it: what any client may look for is in it."""
    return {"username": login.username, "password": login.password, "auth": login.basic}


def write(entries: Mapping[str, Any], rest: Mapping[str, Any]) -> str:
    """The text of a configuration; the same for the same content."""
    return json.dumps(dict(rest, auths=dict(entries)), sort_keys=True, separators=(",", ":"))


def read(data: Union[str, bytes], now: float, old_form: bool = False) -> Config:
    """Read and judge a configuration. Never raises: what cannot be read is a fault.

    Args:
        data: its text.
        now: seconds since the epoch, for passwords that tell until when they are valid.
        old_form: it is a `.dockercfg`, which is only the content of `auths`.
    """
    text = data.decode("utf-8", "replace") if isinstance(data, bytes) else data
    faults: list[Fault] = []
    parsed = _parse(text)
    if parsed is None:
        parsed = _parse(_decoded(text) or "")
        if parsed is None:
            return Config(False, faults=(_not_json(text),))
        faults.append(Fault("encoded_twice", "it is encoded in base64 twice, and the kubelet decodes it once"))
    if not isinstance(parsed, dict):
        return Config(False, faults=(*faults, Fault("no_object", "it is JSON, but no object")))
    auths, rest, more = (parsed, {}, []) if old_form and "auths" not in parsed else _split(parsed)
    entries = tuple(_entry(str(key), value, now) for key, value in auths.items())
    return Config(True, entries, rest, (*faults, *more, *_doubles(entries)))


def _parse(text: str) -> Any:
    try:
        return json_text.loads(text)
    except ValueError:
        return None


def _not_json(text: str) -> Fault:
    if text.startswith("\ufeff"):
        return Fault("no_json", "it is no JSON: it begins with a byte order mark")
    return Fault("no_json", "it is empty" if not text.strip() else "it is no JSON")


def _split(parsed: Mapping[str, Any]) -> tuple[Mapping[str, Any], dict[str, Any], list[Fault]]:
    """Its entries, what else is in it, and what is wrong with how they lie."""
    faults = []
    # Go's JSON does not mind capital letters, other clients do
    name = "auths" if "auths" in parsed else next((key for key in parsed if key.lower() == "auths"), "auths")
    if name != "auths":
        faults.append(Fault("auths_letters", "its auths is not written in small letters"))
    rest = {key: value for key, value in parsed.items() if key != name}
    if any(rest.get(key) for key in _HELPERS):
        text = "credentials are left to a helper program (credsStore, credHelpers), which the kubelet does not ask"
        faults.append(Fault("helper", text, certain=False))
    if name in parsed:
        auths = parsed[name]
        if isinstance(auths, dict):
            return auths, rest, faults
        return {}, rest, [Fault("auths_no_object", "its auths is no object"), *faults]
    fault = Fault("no_auths", "it has no level auths, so the kubelet finds no credentials in it")
    misplaced = {key: value for key, value in rest.items() if _looks_like_entry(value)}
    return misplaced, {key: value for key, value in rest.items() if key not in misplaced}, [fault, *faults]


def _looks_like_entry(value: Any) -> bool:
    return isinstance(value, dict) and any(name in value for name in _ENTRY_FIELDS)


def _doubles(entries: tuple[Entry, ...]) -> list[Fault]:
    places = Counter(entry.place for entry in entries if entry.place)
    doubled = sorted(place for place, times in places.items() if times > 1)
    return [Fault("doubled", "%s has more than one entry" % place) for place in doubled]


def _entry(key: str, value: Any, now: float) -> Entry:
    place, changes = normalise(key)
    faults = []
    if changes:
        shown = " %r" % key[:100] if place else ""  # one that is no name may be anything, a password too
        faults.append(Fault("key", "the key%s is not as clients look for it: %s" % (shown, " and ".join(changes))))
    login, more = _login(value)
    faults += more
    if login is not None:
        faults += faults_of(place, login, now)
    return Entry(key, place, value, login, tuple(faults))


def _login(value: Any) -> tuple[Optional[Login], list[Fault]]:
    if not isinstance(value, dict):
        return None, [Fault("entry_no_object", "its entry is no object")]
    plain = Login(*(value.get(name) if isinstance(value.get(name), str) else "" for name in ("username", "password")))
    auth = value.get("auth")
    if not auth:
        if plain.username or plain.password:
            return plain, []
        return None, [_nothing(value)]
    if not isinstance(auth, str):
        return None, [Fault("auth_no_text", "its auth is no text")]
    login, fault = _login_of_auth(auth)
    if fault is not None:
        return None, [fault]
    if (plain.username or plain.password) and plain != login:
        return login, [Fault("auth_differs", "its auth holds other credentials than its username and password")]
    return login, []


def _nothing(value: Mapping[str, Any]) -> Fault:
    if value.get("identitytoken") or value.get("registrytoken"):
        return Fault("token_only", "its entry has a login token only, which the kubelet does not know")
    return Fault("entry_empty", "its entry has no credentials")


def _login_of_auth(auth: str) -> tuple[Optional[Login], Optional[Fault]]:
    text = _decoded(auth)
    if text is None:
        plain = " (it seems to be user:password as it is)" if ":" in auth else ""
        return None, Fault("auth_no_base64", "its auth is no base64%s" % plain)
    username, colon, password = text.partition(":")
    if colon:
        return Login(username, password), None
    inner = _decoded(text)
    if inner is not None and ":" in inner:
        return None, Fault("auth_encoded_twice", "its auth is encoded in base64 twice")
    return None, Fault("auth_no_colon", "its auth is not of the form user:password")


def _decoded(text: str) -> Optional[str]:
    """Base64 as Go decodes it: line ends do not count, padding may be left away altogether."""
    plain = text.replace("\r", "").replace("\n", "")
    padded = plain if plain.endswith("=") else plain + "=" * (-len(plain) % 4)
    try:
        return base64.b64decode(padded, validate=True).decode("utf-8")
    except (binascii.Error, ValueError):
        return None
