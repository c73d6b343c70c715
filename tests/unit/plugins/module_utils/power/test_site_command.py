# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The site's power commands: `cmsh` and `ipmitool` as executables that print what their manuals show."""

from __future__ import annotations

import dataclasses
import pathlib
import time
from typing import Any

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import (
    Absent,
    BadInput,
    Conflict,
    TimedOut,
    Unreachable,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.power.drivers import Power, check_address
from ansible_collections.mission_control.job_recovery.plugins.module_utils.power.redfish import OFF, ON, UNKNOWN
from ansible_collections.mission_control.job_recovery.plugins.module_utils.power.site_command import (
    SitePower,
    check_commands,
    read_state,
    read_uuid,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import (
    PowerCommands,
    PowerSettings,
    parse,
)

UUID = "4c4c4544-0042-3510-8052-b4c04f4d3732"
OTHER = "4c4c4544-0042-3510-8052-b4c04f4d3733"
ON_PATTERN = r"\S+ \.+ \[ *ON *\] {name}"
OFF_PATTERN = r"\S+ \.+ \[ *OFF *\] {name}"

# The Administrator Manual, "Power Operations Through cmsh": `apc01:3 ............. [ ON ] node003`. The state of each
# node is a file; a node without one is unknown to the fake, which then ends with 0 as a tool does that reports errors
# in words only.
CMSH = r"""#!/usr/bin/python3
import pathlib, re, sys
here = pathlib.Path(__file__).parent
if sys.argv[1:-1] != ["--norc", "--color", "no", "-c"]:
    sys.exit("unknown arguments: %r" % sys.argv)
words = re.fullmatch(r"device power -n (\S+) (status|on|off)", sys.argv[-1])
if not words:
    sys.exit("unknown command: %r" % sys.argv[-1])
node, verb = words.groups()
with open(here / "log", "a") as log:
    log.write("%s %s\n" % (node, verb))
state = here / (node + ".power")
if not state.exists():
    print("Error: %s: no such device" % node)
    sys.exit(0)
if verb != "status" and not (here / "stuck").exists():
    state.write_text(verb.upper())
print("ipmi0 ............. [ %s ] %s" % (state.read_text(), node))
"""
# ipmitool(1): -f reads the password from a file, so that it is no argument.
IPMITOOL = r"""#!/usr/bin/python3
import pathlib, sys
here = pathlib.Path(__file__).parent
host = sys.argv[sys.argv.index("-H") + 1]
if sys.argv[1:] != ["-I", "lanplus", "-H", host, "-U", "recovery", "-f", "/etc/ipmi.password", "mc", "guid"]:
    sys.exit("unknown arguments: %r" % sys.argv)
told = here / (host.split(".")[0] + ".guid")
if not told.exists():
    sys.exit("Error: Unable to establish IPMI v2 / RMCP+ session")
print("System GUID  : %s" % told.read_text())
print("Timestamp    : 11/13/2010 07:19:00")
"""


class Site:
    """The tools' folder, and what they were asked."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        for name, source in (("cmsh", CMSH), ("ipmitool", IPMITOOL)):
            (folder / name).write_text(source)
            (folder / name).chmod(0o755)
        self.add("node001", "ON", UUID)

    def add(self, node: str, state: str, guid: str) -> None:
        (self.folder / (node + ".power")).write_text(state)
        (self.folder / (node + ".guid")).write_text(guid)

    @property
    def log(self) -> list[str]:
        path = self.folder / "log"
        return path.read_text().splitlines() if path.exists() else []

    def settings(self, **other: Any) -> PowerSettings:
        cmsh = [str(self.folder / "cmsh"), "--norc", "--color", "no", "-c"]
        guid = [str(self.folder / "ipmitool"), "-I", "lanplus", "-H", "{name}.ipmi.cluster", "-U", "recovery", "-f",
                "/etc/ipmi.password", "mc", "guid"]
        commands = PowerCommands(
            status=(*cmsh, "device power -n {name} status"),
            switch_on=(*cmsh, "device power -n {name} on"),
            switch_off=(*cmsh, "device power -n {name} off"),
            identify=tuple(guid),
            on_pattern=ON_PATTERN,
            off_pattern=OFF_PATTERN,
        )
        return PowerSettings(timeout=5.0, commands=dataclasses.replace(commands, **other))


@pytest.fixture
def site(tmp_path: pathlib.Path) -> Site:
    return Site(tmp_path)


@pytest.mark.parametrize(("output", "state"), [
    ("apc01:3 ............. [ ON ] node001", ON),
    ("custom ................... [ ON ] node001\n", ON),
    ("ipmi0 ............... [   OFF   ] node001\r\n", OFF),
    ("  ipmi0 ............. [ OFF ] node001  ", OFF),
    ("apc01:4 ............. [ ON ] node002\nipmi0 ............. [ OFF ] node001", OFF),
    ("ipmi0 ............. [ OFF ] node0010", UNKNOWN),
    ("ipmi0 ............. [ OFF ] node002", UNKNOWN),
    ("ipmi0 ............. [ ON ] node001\nipmi0 ............. [ OFF ] node001", UNKNOWN),
    ("ipmi0 ............. [ FAILED ] node001", UNKNOWN),
    ("ipmi0 ............. [ RESET ] node001", UNKNOWN),
    ("Error: node001: no such device, power is [ OFF ]", UNKNOWN),
    ("", UNKNOWN),
])
def test_the_state_is_what_the_line_of_this_node_says(output: str, state: str) -> None:
    assert read_state(output, "node001", ON_PATTERN, OFF_PATTERN) == state


def test_a_name_is_no_pattern() -> None:
    assert read_state("x ... [ OFF ] nodeX1", "node.1", ON_PATTERN, OFF_PATTERN) == UNKNOWN


@pytest.mark.parametrize(("output", "uuid"), [
    ("System GUID  : %s\nTimestamp    : 11/13/2010" % UUID, UUID),
    (UUID.upper(), UUID),
    ("%s %s" % (UUID, UUID), UUID),
    ("%s %s" % (UUID, OTHER), ""),  # which of them?
    ("00000000-0000-0000-0000-000000000000", ""),
    ("a" + UUID, ""),
    ("no such node", ""),
    ("", ""),
])
def test_the_uuid_is_the_only_one_told(output: str, uuid: str) -> None:
    assert read_uuid(output) == uuid


def test_off_and_on_are_levels(site: Site) -> None:
    power = Power(site.settings())
    assert power.read("site:node001").state == ON
    assert power.request_level("site:node001", OFF, UUID, 5).state == ON
    assert power.await_level("site:node001", (OFF,), UUID, 5).state == OFF
    assert power.request_level("site:node001", OFF, UUID, 5).state == OFF  # asks for nothing
    assert power.request_level("site:node001", ON, UUID, 5).state == OFF
    assert power.await_level("site:node001", (ON,), UUID, 5).state == ON
    assert [line for line in site.log if not line.endswith("status")] == ["node001 off", "node001 on"]


@pytest.mark.parametrize("guid", [OTHER, "00000000-0000-0000-0000-000000000000", "not available"])
def test_a_machine_that_is_not_proved_is_never_switched(site: Site, guid: str) -> None:
    site.add("node001", "ON", guid)
    with pytest.raises(Conflict, match="identify"):
        SitePower(site.settings()).request_level("site:node001", OFF, UUID, 5)
    assert site.log == ["node001 status"]


def test_without_identify_nothing_is_switched(site: Site) -> None:
    with pytest.raises(BadInput, match="identify"):
        SitePower(site.settings(identify=())).request_level("site:node001", OFF, UUID, 5)
    assert site.log == []


def test_a_power_device_that_does_not_answer_is_unreachable(site: Site) -> None:
    (site.folder / "node001.guid").unlink()
    with pytest.raises(Unreachable, match="RMCP"):
        SitePower(site.settings()).request_level("site:node001", OFF, UUID, 5)
    assert site.log == []


def test_an_exit_code_of_0_proves_nothing(site: Site) -> None:
    (site.folder / "stuck").touch()
    power = SitePower(site.settings())
    power.request_level("site:node001", OFF, UUID, 5)
    assert power.await_level("site:node001", (OFF,), UUID, 0.1).state == ON


def test_a_node_that_the_tool_does_not_know_is_unknown(site: Site) -> None:
    (site.folder / "node001.power").unlink()
    assert SitePower(site.settings()).read("site:node001").state == UNKNOWN


def test_a_guard_that_raises_stops_the_command(site: Site) -> None:
    def guard() -> None:
        raise Conflict("another run has taken over")

    with pytest.raises(Conflict, match="taken over"):
        SitePower(site.settings()).request_level("site:node001", OFF, UUID, 5, before_write=guard)
    assert "node001 off" not in site.log


def test_a_command_that_hangs_ends_at_its_deadline_with_all_that_it_started(site: Site) -> None:
    slow = site.folder / "slow"
    slow.write_text("#!/bin/sh\nsleep 60 &\necho $! > %s/child\nwait\n" % site.folder)
    slow.chmod(0o755)
    began = time.monotonic()
    with pytest.raises(TimedOut, match="did not end within"):
        SitePower(site.settings(status=(str(slow), "{name}"))).read("site:node001", 3)
    assert time.monotonic() - began < 20
    child = pathlib.Path("/proc/" + (site.folder / "child").read_text().strip(), "stat")
    until = time.monotonic() + 5  # a killed process is there until its parent has looked
    while child.exists() and child.read_text().split()[2] != "Z":
        assert time.monotonic() < until
        time.sleep(0.05)


def test_a_command_that_is_not_there_is_said(site: Site) -> None:
    with pytest.raises(Absent, match="cannot be run"):
        SitePower(site.settings(status=("/nowhere/cmsh", "{name}"))).read("site:node001")


def test_read_many_keeps_troubles_apart(site: Site) -> None:
    site.add("node002", "OFF", OTHER)
    answers = Power(site.settings()).read_many(["site:node001", "site:node002", "site:node003", "http://127.0.0.1:1/x"])
    assert answers["site:node001"].state == ON
    assert (answers["site:node002"].state, answers["site:node002"].uuid) == (OFF, OTHER)
    assert isinstance(answers["site:node003"], Unreachable)
    assert not hasattr(answers["http://127.0.0.1:1/x"], "state")


@pytest.mark.parametrize("url", ["site:", "site:-n", "site:a b", "site:a;on", "site:$(id)", "site:n[1-2]", "n1"])
def test_what_could_be_more_than_a_name_is_refused(url: str) -> None:
    with pytest.raises(BadInput):
        check_address(url)


@pytest.mark.parametrize("change", [
    {"status": ()},
    {"identify": ()},
    {"switch_off": ("cmsh", "-c", "device power -n node001 off")},  # always the same node
    {"off_pattern": "OFF"},
    {"on_pattern": ""},
    {"on_pattern": "({name}"},
])
def test_commands_that_cannot_work_are_refused(site: Site, change: dict[str, Any]) -> None:
    check_commands(site.settings())
    with pytest.raises(BadInput):
        check_commands(site.settings(**change))


def test_the_settings_file_takes_commands() -> None:
    settings = parse({
        "cluster": "c",
        "slurm": {"enabled": False},
        "power": {"commands": {"status": ["a", "{name}"], "on_pattern": "{name}: on"}},
    })
    assert settings.power.commands == PowerCommands(status=("a", "{name}"), on_pattern="{name}: on")
