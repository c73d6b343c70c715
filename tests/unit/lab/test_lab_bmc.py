# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from joblab import bmc
from joblab.errors import LabError
from joblab.instance import Instance


def test_good_unless_asked(instance: Instance) -> None:
    assert bmc.behaviour(instance) == bmc.Behaviour()


def test_behaviour_is_kept_in_the_file(instance: Instance) -> None:
    wanted = bmc.Behaviour(delay_seconds=2.5, swap_uuid=("node1", "node2"), refuse=("node3",), ignore=("node4",))
    bmc.misbehave(instance, wanted)
    assert bmc.behaviour(instance) == wanted
    bmc.misbehave(instance, bmc.Behaviour())
    assert bmc.behaviour(instance) == bmc.Behaviour()


@pytest.mark.parametrize(("text", "problem"), [
    ("[]x", "no JSON"),
    ("3", "no JSON"),
    ('{"slow": 1}', "unknown slow"),
    ('{"delay_seconds": "soon"}', "no JSON"),
    ('{"delay_seconds": -1}', "not negative"),
    ('{"refuse": ["node9"]}', "no such node: node9"),
    ('{"swap_uuid": ["node1"]}', "two nodes"),
])
def test_bad_behaviour_is_refused(text: str, problem: str) -> None:
    with pytest.raises(LabError, match=problem):
        bmc.parse_behaviour(text)


def test_uuid_is_the_nodes_own_unless_swapped(instance: Instance) -> None:
    swapped = bmc.Behaviour(swap_uuid=("node1", "node2"))
    assert bmc.told_uuid(instance, "node1", bmc.Behaviour()) == instance.smbios_uuid("node1")
    assert bmc.told_uuid(instance, "node1", swapped) == instance.smbios_uuid("node2")
    assert bmc.told_uuid(instance, "node2", swapped) == instance.smbios_uuid("node1")
    assert bmc.told_uuid(instance, "node3", swapped) == instance.smbios_uuid("node3")


def test_password_is_private_and_kept(instance: Instance) -> None:
    password = bmc.password(instance)
    assert bmc.password(instance) == password
    assert instance.secret("bmc").stat().st_mode & 0o777 == 0o600


def test_the_journal_of_switches_is_kept_in_order(instance: Instance) -> None:
    assert bmc.switches(instance) == []
    bmc.folder(instance).mkdir(parents=True)
    for level in ("Off", "On"):
        bmc.record_switch(instance, "node2", level)
    first, second = bmc.switches(instance)
    assert [(one.node, one.level) for one in (first, second)] == [("node2", "Off"), ("node2", "On")]
    assert bmc.switches(instance, second.at) == [second]
