# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reservations by JSON and by text, of the shapes that Slurm 22.05 to 24.11 print."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import Unreachable, Unreadable
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm import reservations
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.cli import SlurmCli
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.reservations import Reservation

BIOS = Reservation("bios", ("n1", "n2"), ("MAINT", "SPEC_NODES"), 1764500000, 1764503600)
RECORD = {
    "name": "bios",
    "node_list": "n[1-2]",
    "flags": ["MAINT", "SPEC_NODES"],
    "start_time": {"set": True, "infinite": False, "number": 1764500000},
    "end_time": {"set": True, "infinite": False, "number": 1764503600},
    "users": "root",
}
TEXT = """ReservationName=bios StartTime=1764500000 EndTime=1764503600 Duration=01:00:00
   Nodes=n[1-2] NodeCnt=2 CoreCnt=8 Features=(null) PartitionName=(null) Flags=MAINT,SPEC_NODES
   TRES=cpu=8
   Users=root Groups=(null) Accounts=(null) Licenses=(null) State=INACTIVE BurstBuffer=(null)
   MaxStartDelay=(null)
   Comment=see Nodes=n9 Flags=
"""
LICENSES = """ReservationName=lic StartTime=2025-11-30T10:53:20 EndTime=(null) Duration=UNLIMITED
   Nodes=(null) NodeCnt=0 CoreCnt=0 Features=(null) PartitionName=(null) Flags=
   TRES=(null)
"""


def answer(*records: Any) -> str:
    return json.dumps({"reservations": list(records), "errors": []})


@pytest.mark.parametrize(
    ("text", "made"),
    [
        (answer(), []),
        (answer(RECORD), [BIOS]),
        (answer({**RECORD, "start_time": 1764500000, "end_time": 1764503600, "flags": "MAINT,SPEC_NODES"}), [BIOS]),
        (answer({**RECORD, "node_list": "", "flags": []}), [Reservation("bios", (), (), BIOS.start, BIOS.end)]),
    ],
)
def test_json(text: str, made: list[Reservation]) -> None:
    assert reservations.from_json(text) == made


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("", []),
        ("No reservations in the system\n", []),
        (TEXT, [BIOS]),
        (TEXT + "\n" + LICENSES, [BIOS, Reservation("lic", (), (), 1764500000)]),
    ],
)
def test_text(text: str, made: list[Reservation]) -> None:
    assert reservations.from_text(text) == made


@pytest.mark.parametrize(
    "spoiled",
    [
        answer({**RECORD, "name": ""}),
        answer({**RECORD, "start_time": {"set": False}}),
        answer({**RECORD, "flags": 7}),
        answer({**RECORD, "node_list": "n[1-"}),
        '{"nodes": []}',
        "no JSON",
    ],
)
def test_a_reservation_that_is_not_understood_is_not_left_out(spoiled: str) -> None:
    with pytest.raises(Unreadable):
        reservations.from_json(spoiled)


@pytest.mark.parametrize(
    "spoiled", ["something else", TEXT.replace("1764500000", "soon"), TEXT.replace("n[1-2]", "n[")]
)
def test_a_text_that_is_not_understood_is_not_left_out(spoiled: str) -> None:
    with pytest.raises(Unreadable):
        reservations.from_text(spoiled)


@pytest.mark.parametrize(("now", "active", "over"), [(1764499999, 0, 0), (1764500000, 1, 0), (1764503600, 0, 1)])
def test_when(now: float, active: bool, over: bool) -> None:
    assert (BIOS.is_active(now), BIOS.is_over(now)) == (active, over)


def test_an_older_scontrol_is_asked_for_text(fake: Any) -> None:
    (fake.folder / "text").write_text(TEXT, encoding="utf-8")
    fake.program(
        "scontrol",
        'case "$*" in *--json*) echo "scontrol: unrecognized option --json" >&2; exit 1;; '
        '"--all show reservation") cat %s/text;; *) exit 97;; esac' % fake.folder,
    )
    assert SlurmCli(fake.bin_dir).reservations() == [BIOS]


def test_a_scontrol_that_tells_reservations_by_text_alone(fake: Any) -> None:
    (fake.folder / "text").write_text(TEXT, encoding="utf-8")
    fake.program("scontrol", "cat %s/text" % fake.folder)
    assert SlurmCli(fake.bin_dir).reservations() == [BIOS]


def test_no_answer_is_not_no_reservation(fake: Any) -> None:
    fake.program("scontrol", "echo 'Unable to contact slurm controller' >&2; exit 1")
    with pytest.raises(Unreachable):
        SlurmCli(fake.bin_dir).reservations()
