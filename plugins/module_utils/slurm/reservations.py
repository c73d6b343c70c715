# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reservations: which nodes somebody wants for himself, from when to when. Model and parsers; pure.

A node's state tells of a reservation only while it is active (MAINTENANCE, RESERVED), and of one that begins in ten
minutes nothing.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any, Iterable, Optional

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import Unreadable
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm import parse_json, values

_FIELD = re.compile(r"(?:\A|\s)([A-Za-z]+)=(\S*)")
_START = "ReservationName="
_NONE = "No reservations in the system"


@dataclasses.dataclass(frozen=True)
class Reservation:
    """One reservation. Times are epoch seconds; `end` is None where Slurm has none."""

    name: str
    nodes: tuple[str, ...]
    flags: tuple[str, ...]
    start: int
    end: Optional[int] = None

    @property
    def maintenance(self) -> bool:
        """Made for work on the nodes themselves."""
        return "MAINT" in self.flags

    def is_active(self, now: float) -> bool:
        """Begun and not over."""
        return self.start <= now and not self.is_over(now)

    def is_over(self, now: float) -> bool:
        """Ended; slurmctld takes it away a moment later."""
        return self.end is not None and self.end <= now


def of_node(name: str, reservations: Iterable[Reservation]) -> tuple[Reservation, ...]:
    """Those that have a node."""
    return tuple(each for each in reservations if name in each.nodes)


def parse(output: str) -> list[Reservation]:
    """The reservations of an answer; a scontrol that knows JSON need not know it of reservations.

    Raises:
        Unreadable: one of them is not understood; none is left out.
    """
    return from_json(output) if output.lstrip().startswith("{") else from_text(output)


def from_json(output: str) -> list[Reservation]:
    """The reservations of `scontrol show reservation --json`.

    Raises:
        Unreadable: one of them is not understood; none is left out.
    """
    return [
        _reservation(
            record.get("name"),
            record.get("node_list"),
            record.get("flags"),
            values.json_time(record.get("start_time")),
            values.json_time(record.get("end_time")),
        )
        for record in parse_json.records(output, "reservations")
    ]


def from_text(output: str) -> list[Reservation]:
    """The reservations of `scontrol show reservation`, whose times are epoch seconds (SLURM_TIME_FORMAT=%s).

    Raises:
        Unreadable: one of them is not understood; none is left out.
    """
    text = output.strip()
    if not text or text == _NONE:
        return []
    if not text.startswith(_START):
        raise Unreadable("Slurm's list of reservations is not understood")
    return [_of_record(_START + record) for record in re.split("^" + _START, text, flags=re.MULTILINE)[1:]]


def _of_record(record: str) -> Reservation:
    found: dict[str, str] = {}
    for key, value in _FIELD.findall(record):
        found.setdefault(key, value)  # a comment comes last, and may look like a field
    times = (values.text_time(found.get(key), key) for key in ("StartTime", "EndTime"))
    return _reservation(found.get("ReservationName"), found.get("Nodes"), found.get("Flags"), *times)


def _reservation(name: Any, nodes: Any, flags: Any, start: Optional[int], end: Optional[int]) -> Reservation:
    flags = flags.split(",") if isinstance(flags, str) else flags
    if not isinstance(name, str) or not name or start is None or not isinstance(flags, (list, type(None))):
        raise Unreadable("a reservation of Slurm's is not understood: %s" % ascii(name)[:80])
    words = tuple(str(flag).upper() for flag in flags or () if flag)
    return Reservation(name, values.nodes(nodes if isinstance(nodes, str) else None), words, start, end)
