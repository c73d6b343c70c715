# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is to be done to one pull secret, from what it is and what it should be. Pure.

A secret is touched only when it is ours by its label, or the caller says `adopt`. The credentials of other registries
in it stay as they are, in the form they have, unless the caller says that they go.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field, replace
from typing import Any, Mapping, Optional

from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes import reading
from ansible_collections.mission_control.job_recovery.plugins.module_utils.registry import docker_config
from ansible_collections.mission_control.job_recovery.plugins.module_utils.registry.docker_config import Config, Entry
from ansible_collections.mission_control.job_recovery.plugins.module_utils.registry.login import Login
from ansible_collections.mission_control.job_recovery.plugins.module_utils.registry.reference import covers

Object = Mapping[str, Any]

TYPE = "kubernetes.io/dockerconfigjson"
KEY = ".dockerconfigjson"
OLD_TYPE = "kubernetes.io/dockercfg"
OLD_KEY = ".dockercfg"
LABEL = "app.kubernetes.io/managed-by"
OWNER = "mission-control-job-recovery"

NOTHING = "nothing"
CREATE = "create"
PATCH = "patch"
RECREATE = "recreate"
DELETE = "delete"
REFUSE = "refuse"

#: What else Docker keeps in its configuration.
_KNOWN_SETTINGS = ("HttpHeaders", "credHelpers", "credsStore", "currentContext", "proxies")


@dataclass(frozen=True)
class Wanted:
    """What the caller asks for.

    Attributes:
        name, namespace: the secret's.
        place: the registry (or a part of it) that the credentials are for.
        login: the credentials; None = there shall be none.
        keep_others: whether the entries of other registries stay.
        adopt: whether a secret without our label may be changed.
        recreate: whether a secret that cannot be changed (wrong type, immutable) may be deleted and made anew.
    """

    name: str
    namespace: str
    place: str
    login: Optional[Login]
    keep_others: bool = True
    adopt: bool = False
    recreate: bool = False


@dataclass(frozen=True)
class Plan:
    """What is to be done.

    Attributes:
        action: `nothing`, `create`, `patch`, `recreate`, `delete` or `refuse`.
        body: what is written. Secret.
        why: of a refusal, and what helps.
        found: what is wrong with the secret as it is, a line each.
        before, after: what is shown of both; equal where nothing is changed.
    """

    action: str
    body: Object = field(default_factory=dict, repr=False)
    why: str = ""
    found: tuple[str, ...] = ()
    before: Object = field(default_factory=dict)
    after: Object = field(default_factory=dict)


@dataclass(frozen=True)
class Present:
    """A secret as it stands, read and judged."""

    secret: Object = field(repr=False)
    type: str
    owned: bool
    immutable: bool
    config: Config
    faults: tuple[str, ...]


def look(secret: Object, now: float) -> Present:
    """Read a Secret of any type. Never raises; what is wrong with it stands in `faults`."""
    kind = reading.text(secret, "type")
    metadata = reading.part(secret, "metadata")
    faults = []
    if kind == OLD_TYPE:
        faults.append("it is of the old type %s, which holds %s instead of %s" % (OLD_TYPE, OLD_KEY, KEY))
    elif kind != TYPE:
        faults.append("its type is %s, and the kubelet takes credentials only from %s" % (kind or "empty", TYPE))
    config, fault = _config(secret, OLD_KEY if kind == OLD_TYPE else KEY, now)
    faults += [fault] if fault else config.all_faults()
    owned = reading.text(reading.part(metadata, "labels"), LABEL) == OWNER
    return Present(secret, kind, owned, secret.get("immutable") is True, config, tuple(faults))


def _config(secret: Object, key: str, now: float) -> tuple[Config, str]:
    data = reading.part(secret, "data")
    if key not in data:
        return Config(True), "it has no %s" % key
    try:
        raw = base64.b64decode(reading.text(data, key), validate=True)
    except (binascii.Error, ValueError):
        return Config(False), "its %s is no base64" % key
    return docker_config.read(raw, now, old_form=key == OLD_KEY), ""


def plan(secret: Optional[Object], wanted: Wanted, now: float) -> Plan:
    """What is to be done to `secret` (None = there is none) so that it is as `wanted`.

    Args:
        now: seconds since the epoch, for passwords that tell until when they are valid.
    """
    if secret is None:
        return Plan(NOTHING) if wanted.login is None else _created(wanted, now)
    present = look(secret, now)
    if reading.part(secret, "metadata").get("deletionTimestamp"):
        made = _refused(present, "it is being deleted", "run again when it is gone")
    else:
        made = _absent(present, wanted) if wanted.login is None else _present(present, wanted)
    if made.action in (NOTHING, REFUSE):
        return replace(made, before=_shown(present, wanted), after=_shown(present, wanted))
    if made.action == DELETE:
        return replace(made, before=_shown(present, wanted))
    # what it will be is read from what is written, as the next run will read it
    return replace(made, before=_shown(present, wanted), after=_shown(look(_merged(secret, made), now), wanted))


def _created(wanted: Wanted, now: float) -> Plan:
    entries = {} if wanted.login is None else _own_entry(wanted.place, wanted.login)
    body = _new(wanted, docker_config.write(entries, {}))
    return Plan(CREATE, body, after=_shown(look(body, now), wanted))


def _own_entry(place: str, login: Login) -> dict[str, Any]:
    return {docker_config.key_of(place): docker_config.entry_of(login)}


def _merged(secret: Object, made: Plan) -> Object:
    if made.action != PATCH:
        return made.body
    metadata = dict(reading.part(secret, "metadata"))
    metadata["labels"] = {**reading.part(metadata, "labels"), LABEL: OWNER}
    return {**secret, "metadata": metadata, "data": {**reading.part(secret, "data"), **made.body.get("data", {})}}


def _present(present: Present, wanted: Wanted) -> Plan:
    if _is_right(present, wanted):
        if present.owned or not wanted.adopt:
            return _unchanged(present, wanted)
        return _patch(present, None)
    if not present.owned and not wanted.adopt:
        return _not_ours(present)
    if not present.config.readable and wanted.keep_others:
        return _refused(
            present,
            "its entries cannot be read, so those of other registries cannot be kept",
            "others=remove replaces the whole content",
        )
    if present.type != TYPE or present.immutable:
        return _made_anew(present, wanted)
    return _patch(present, _content(present, wanted))


def _absent(present: Present, wanted: Wanted) -> Plan:
    mine, others = _sorted(present.config, wanted.place)
    if not mine and wanted.keep_others and present.config.readable and (others or not present.owned):
        return _unchanged(present, wanted)
    if not present.owned and not wanted.adopt:
        return _not_ours(present)
    if not wanted.keep_others or (present.config.readable and not others):
        return Plan(DELETE, found=present.faults)
    if not present.config.readable:
        return _refused(present, "its entries cannot be read", "others=remove deletes it altogether")
    if present.type != TYPE or present.immutable:
        return _made_anew(present, wanted)
    return _patch(present, _content(present, wanted))


def _is_right(present: Present, wanted: Wanted) -> bool:
    """Whether the kubelet, helm and Docker find exactly the wanted credentials in it already.

    `auth` and username with password are the same in either form, and in both together.
    """
    mine, others = _sorted(present.config, wanted.place)
    key = docker_config.key_of(wanted.place)
    right = len(mine) == 1 and mine[0].key == key and mine[0].login == wanted.login
    right = right and not any(fault.id == "auth_differs" for fault in mine[0].faults)
    whole = present.type == TYPE and not any(fault.certain for fault in present.config.faults if fault.id != "doubled")
    return right and whole and (wanted.keep_others or not (others or present.config.rest))


def _made_anew(present: Present, wanted: Wanted) -> Plan:
    if not wanted.recreate:
        why = "it is immutable" if present.type == TYPE else "its type is %s instead of %s" % (present.type, TYPE)
        return _refused(present, why + ", which can never be changed", "recreate=true deletes it and makes it")
    return Plan(RECREATE, _new(wanted, _content(present, wanted)), found=present.faults)


def _content(present: Present, wanted: Wanted) -> str:
    entries: dict[str, Any] = {}
    rest: Object = {}
    if wanted.keep_others:
        entries = {entry.key: entry.value for entry in _sorted(present.config, wanted.place)[1]}
        rest = present.config.rest
    if wanted.login is not None:
        entries.update(_own_entry(wanted.place, wanted.login))
    return docker_config.write(entries, rest)


def _sorted(config: Config, place: str) -> tuple[list[Entry], list[Entry]]:
    """The entries for a place, however their keys are written, and the others."""
    mine = [entry for entry in config.entries if entry.place == place]
    return mine, [entry for entry in config.entries if entry.place != place]


def _new(wanted: Wanted, content: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": TYPE,
        "metadata": {"name": wanted.name, "namespace": wanted.namespace, "labels": {LABEL: OWNER}},
        "data": {KEY: _encoded(content)},
    }


def _patch(present: Present, content: Optional[str]) -> Plan:
    """Change the label, and the content where one is given, of exactly the version that was read."""
    version = reading.text(reading.part(present.secret, "metadata"), "resourceVersion")
    body: dict[str, Any] = {"metadata": {"resourceVersion": version, "labels": {LABEL: OWNER}}}
    if content is not None:
        body["data"] = {KEY: _encoded(content)}
    return Plan(PATCH, body, found=present.faults)


def _encoded(content: str) -> str:
    return base64.b64encode(content.encode("utf-8")).decode("ascii")


def _unchanged(present: Present, wanted: Wanted) -> Plan:
    return Plan(NOTHING, found=(*present.faults, *_closer(present.config, wanted)))


def _not_ours(present: Present) -> Plan:
    why = "it is somebody else's (it has no label %s=%s)" % (LABEL, OWNER)
    return _refused(present, why, "adopt=true changes it nevertheless, or choose another name")


def _refused(present: Present, why: str, next_step: str) -> Plan:
    text = "%s; %s" % (why, next_step)
    if present.faults:
        text += ". Found in it: %s" % "; ".join(present.faults)
    return Plan(REFUSE, {}, text, present.faults)


def _closer(config: Config, wanted: Wanted) -> list[str]:
    """Entries for a part of the wanted place: the kubelet tries them first."""
    places = [entry.place for entry in config.entries if entry.place and entry.place != wanted.place]
    return ["%s has an entry of its own, which comes first" % place for place in places if covers(wanted.place, place)]


def _shown(present: Present, wanted: Wanted) -> Object:
    """What of a secret may be shown, and decides: no user names, no passwords, and nothing that may be one."""
    return {
        "type": present.type,
        "owned": present.owned,
        "registries": {entry.place or "an unreadable key": _word(entry, wanted) for entry in present.config.entries},
        "other_settings": sorted(key for key in present.config.rest if key in _KNOWN_SETTINGS)
        + ["others"] * any(key not in _KNOWN_SETTINGS for key in present.config.rest),
        "faults": list(present.faults),
    }


def _word(entry: Entry, wanted: Wanted) -> str:
    if entry.place != wanted.place or wanted.login is None:
        return "there"
    if entry.login is None:
        return "no credentials"
    if entry.login != wanted.login:
        return "other credentials"
    return "as given" if entry.key == docker_config.key_of(wanted.place) else "as given, under another key"
