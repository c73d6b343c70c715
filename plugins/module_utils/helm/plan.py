# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is to be done to a release, decided from what is wanted and what is there. Pure."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Any, Iterator, Mapping, Optional, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.helm.release import (
    DEPLOYED,
    FAILED,
    PENDING,
    UNINSTALLED,
    UNINSTALLING,
    Release,
)

NOTHING = "nothing"
INSTALL = "install"
UPGRADE = "upgrade"
UNINSTALL = "uninstall"
REFUSE = "refuse"

# Texts that are a secret wherever they stand: they must not be in Helm's record, which many may read.
_SECRET_BEGINNINGS = ("nvapi-", "-----BEGIN PRIVATE KEY", "-----BEGIN RSA PRIVATE KEY", "-----BEGIN OPENSSH PRIVATE")
_SHORTEST_SECRET = 20


@dataclass(frozen=True)
class Wanted:
    """The chart and the values that a release shall have.

    Attributes:
        chart, version: name and version of the chart.
        digests: all digests that it goes by (of its archive, of its manifest in an OCI registry).
        pinned: the user gave a digest, so that it must be the deployed one.
    """

    chart: str
    version: str
    digests: frozenset[str]
    values: Mapping[str, Any]
    pinned: bool = False


@dataclass(frozen=True)
class Plan:
    """What to do, and the differences that decided it (or why it is refused)."""

    action: str
    because: tuple[str, ...] = ()


def plan_present(wanted: Wanted, there: Optional[Release]) -> Plan:
    """Install, upgrade, refuse, or nothing."""
    if there is None or there.status == UNINSTALLED:
        return Plan(INSTALL, ("there is no such release",))
    if there.status in PENDING or there.status == UNINSTALLING:
        return Plan(REFUSE, ("it is %s" % there.status,))
    if there.chart != wanted.chart:
        return Plan(REFUSE, ("it is of the chart %s, and %s is wanted" % (there.chart, wanted.chart),))
    if there.status not in (DEPLOYED, FAILED):
        return Plan(REFUSE, ("it is %s, from which Helm does not go on" % there.status,))
    because = tuple(_differences(wanted, there))
    return Plan(UPGRADE, because) if because else Plan(NOTHING)


def plan_absent(there: Optional[Release], only_own: bool) -> Plan:
    """Uninstall or nothing."""
    if there is None or there.status == UNINSTALLED:
        return Plan(NOTHING)
    if only_own and not there.own:
        return Plan(NOTHING, ("it was not installed by this collection and stays",))
    return Plan(UNINSTALL, ("it is %s" % there.status,))


def _differences(wanted: Wanted, there: Release) -> Iterator[str]:
    if there.status == FAILED:
        yield "revision %d failed" % there.revision
    if there.version != wanted.version:
        yield "version %s becomes %s" % (there.version, wanted.version)
    elif there.digests and not there.digests & wanted.digests:
        yield "version %s has another content than the deployed one" % wanted.version
    elif wanted.pinned and not there.digests and there.status == DEPLOYED:
        yield "the digest of what is deployed is not known"
    if not same_values(there.values, wanted.values):
        yield "the values differ"


def same_values(one: Any, other: Any) -> bool:
    """Whether two trees of values are the same to Helm, which keeps numbers as floating-point ones."""
    return _canonical(one or {}) == _canonical(other or {})


def _canonical(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _canonical(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_canonical(each) for each in value]
    if isinstance(value, bool) or value is None:
        return ("constant", value)  # True == 1 in Python
    return float(value) if isinstance(value, (int, float)) else str(value)


def refuse_repair(there: Release, now: float, helms: Sequence[int], after: float) -> str:
    """Why a pending release may not be repaired now; the empty text lets it be.

    Args:
        now: seconds since the epoch.
        helms: process IDs of `helm` on this machine that name the release.
        after: seconds that it must have been pending, because a helm on another machine cannot be seen.
    """
    if helms:
        return "helm works on it on this machine (process %s)" % ", ".join(str(pid) for pid in helms)
    if there.since is None:
        return "Helm's record does not say since when"
    left = after - (now - there.since)
    if left > 0:
        return "it is so for %d s only, and a helm on another machine may work on it: try again in %d s" % (
            now - there.since,
            left + 1,
        )
    return ""


def secrets_in(values: Any, secrets: Sequence[str]) -> list[str]:
    """The places in `values` (as `a.b[0]`) that hold one of these secrets, as it is or in base64, or an evident one.

    `secrets` of fewer than four characters are not looked for: they are found everywhere and protect nothing.
    """
    forms = [form for secret in secrets if len(secret) > 3 for form in _forms(secret)]
    return [place for place, text in _texts(values, "") if any(form in text for form in forms) or _evident(text)]


def _forms(secret: str) -> list[str]:
    data = secret.encode()
    made = [secret, json.dumps(secret)[1:-1]]
    for before in range(3):
        # the bits of the neighbours are in the first and the last characters; those are left away
        encoded = base64.b64encode(b"\0" * before + data).decode()
        made.append(encoded[(before * 8 + 5) // 6 : (before + len(data)) * 8 // 6])
    return [form for form in made if len(form) > 3]


def _evident(text: str) -> bool:
    return len(text) >= _SHORTEST_SECRET and any(beginning in text for beginning in _SECRET_BEGINNINGS)


def _texts(value: Any, place: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, each in value.items():
            inside = "%s.%s" % (place, key) if place else str(key)
            yield place or ".", str(key)
            yield from _texts(each, inside)
    elif isinstance(value, (list, tuple)):
        for number, each in enumerate(value):
            yield from _texts(each, "%s[%d]" % (place, number))
    elif value is not None:
        yield place, str(value)
