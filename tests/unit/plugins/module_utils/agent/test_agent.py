# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The agent's parts: reading the kernel's log, keeping reports. A packet socket gives records as /dev/kmsg does."""

from __future__ import annotations

import json
import os
import secrets
import socket
import threading
import time
from pathlib import Path
from typing import Any, Iterator

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.agent import (
    config,
    delivery,
    disks,
    protocol,
    spool,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.agent.delivery import Delivery
from ansible_collections.mission_control.job_recovery.plugins.module_utils.agent.records import (
    File,
    Position,
    Ring,
    opened,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.agent.service import Agent
from ansible_collections.mission_control.job_recovery.plugins.module_utils.agent.spool import Spool

BOOT = "11111111-2222-3333-4444-555555555555"
OTHER = "99999999-2222-3333-4444-555555555555"
XID79 = "NVRM: Xid (PCI:0000:05:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
TOLD = config.Config(("127.0.0.1",), 1, 0, "node1")


def kmsg(number: int, text: str, level: int = 4) -> bytes:
    return b"%d,%d,%d,-;%s\n SUBSYSTEM=pci\n" % (level, number, number * 1000, text.encode())


@pytest.fixture
def device() -> Iterator[tuple[int, socket.socket]]:
    """A descriptor that gives one record a read and does not block, and where its records are written."""
    reading, writing = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    reading.setblocking(False)
    with reading, writing:
        yield reading.fileno(), writing


def report(action: str = "reboot") -> dict[str, Any]:
    return {"id": secrets.token_hex(16), "action": action}


@pytest.mark.parametrize(
    ("position", "numbers", "read", "lost"),
    [
        (Position(BOOT, 0, -1), [0, 1, 2], [0, 1, 2], 0),
        (Position(BOOT, 0, 1), [0, 1, 2, 3], [2, 3], 0),  # from the last position only
        (Position(BOOT, 0, 4), [7, 8, 12], [7, 8, 12], 2 + 3),
    ],
)
def test_what_was_overwritten_is_counted(
    device: tuple[int, socket.socket], position: Position, numbers: list[int], read: list[int], lost: int
) -> None:
    ring = Ring(device[0], BOOT, position)
    for number in numbers:
        device[1].send(kmsg(number, "n%d" % number))
    batch = ring.read(100)
    assert [record.text.partition(";")[2] for record in batch.records] == ["n%d" % number for number in read]
    assert (batch.lost, batch.position) == (lost, Position(BOOT, 0, numbers[-1]))
    assert ring.read(100).records == []


def test_a_burst_of_100000_lines_loses_nothing_untold(device: tuple[int, socket.socket], tmp_path: Path) -> None:
    ring, kept = Ring(device[0], BOOT, Position(BOOT, 0, -1)), Spool(str(tmp_path))
    agent = Agent(TOLD, BOOT, kept, ring)
    overrun = set(range(30000, 30500)) | {70000}

    def write() -> None:
        for number in range(100000):
            if number not in overrun:
                device[1].send(kmsg(number, XID79 if number == 90000 else "usb 1-1: flood %d" % number))

    writing = threading.Thread(target=write)
    writing.start()
    seen = 0
    while writing.is_alive() or seen < 100000 - len(overrun):
        seen += agent.step()
    writing.join()
    kept.tell_losses(agent._tell)
    told = {one["code"]: one for one in kept.oldest(spool.LIMIT)}
    assert seen == 100000 - len(overrun)
    assert sum(one["count"] for one in kept.oldest(spool.LIMIT) if one["code"] == spool.OVERRUN) == len(overrun)
    assert told["xid79"]["lines"] == [XID79]
    assert all(protocol.report_of(one) for one in told.values())


@pytest.mark.parametrize(
    ("line", "codes"),
    [
        (kmsg(0, XID79), ["xid79"]),
        (kmsg(0, XID79, level=12), []),  # a program wrote it into /dev/kmsg
        (kmsg(0, "NVRM: Xid (PCI:0000:05:00): 31, pid=7, name=python3, Ch 8, MMU Fault: x"), []),  # the application's
        (XID79.encode() + b"\n", ["xid79"]),
    ],
)
def test_what_is_reported(tmp_path: Path, line: bytes, codes: list[str]) -> None:
    (tmp_path / "log").write_bytes(line.partition(b"\n")[0] + b"\n")
    kept = Spool(str(tmp_path))
    Agent(TOLD, BOOT, kept, opened(str(tmp_path / "log"), BOOT, Position())).step()
    assert [one["code"] for one in kept.oldest(9)] == codes


def test_a_file_is_read_on_and_never_twice(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = File(str(path), BOOT, Position())
    assert log.read(10).records == []
    path.write_bytes(b"one\ntwo\nhal")
    first = log.read(10)
    assert [record.text for record in first.records] == ["one", "two"]
    with path.open("ab") as handle:
        handle.write(b"f\n" + b"x" * 300000 + b"\nend\n")
    again = File(str(path), BOOT, first.position)
    texts = [record.text for _turn in range(4) for record in again.read(10).records]
    assert (texts[0], texts[-1]) == ("half", "end")
    path.write_bytes(b"new\n")
    assert [record.text for record in again.read(10).records] == ["new"]


def test_a_position_of_another_boot_says_nothing(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"one\n")
    position = File(str(path), OTHER, Position()).read(10).position
    assert [record.text for record in File(str(path), BOOT, position).read(10).records] == ["one"]


def test_reports_outlive_a_kill_and_go_when_they_are_taken(tmp_path: Path) -> None:
    first, reports = Spool(str(tmp_path)), [report(), report()]
    first.add(reports, Position(BOOT, 0, 7))
    first.write()
    again = Spool(str(tmp_path))  # nobody ended the first
    assert (again.oldest(9), again.position, again.trouble) == (reports, Position(BOOT, 0, 7), "")
    again.remove([reports[0]["id"]])
    again.write()
    assert Spool(str(tmp_path)).oldest(9) == reports[1:]


def test_what_has_no_room_is_counted_and_the_serious_stays(tmp_path: Path) -> None:
    kept = Spool(str(tmp_path), limit=3)
    serious, mild = [report("reboot"), report("drain_and_report")], [report("report") for _turn in range(4)]
    kept.add([serious[0], *mild, serious[1]], Position())
    assert kept.oldest(9) == [serious[0], mild[3], serious[1]]
    kept.write()
    told: list[dict[str, int]] = []
    Spool(str(tmp_path), limit=3).tell_losses(lambda lost: told.append(lost) or [])
    assert told == [{spool.DROPPED: 3}]


@pytest.mark.parametrize("content", [b"", b"{}", b"[1", b'{"position": [], "reports": [{}], "lost": {}}', b"\xff\xfe"])
def test_a_state_that_is_not_understood_is_said_and_replaced(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "state.json").write_bytes(content)
    kept = Spool(str(tmp_path))
    assert "is not understood" in kept.trouble
    assert kept.oldest(9) == []
    kept.add([report()], Position(BOOT, 0, 1))
    kept.write()
    assert len(json.loads((tmp_path / "state.json").read_text())["reports"]) == 1


def test_a_disk_that_takes_nothing_keeps_no_report_from_being_sent(tmp_path: Path) -> None:
    kept = Spool(str(tmp_path / "none"))
    kept.add([report()], Position())
    kept.write()
    assert "cannot be written" in kept.trouble
    assert len(kept.oldest(9)) == 1


class Offers(Delivery):
    """To a controller that answers at once; keeps when it was offered something."""

    at: list[float]

    def deliver(self, reports: list) -> bool:
        self.at.append(time.monotonic())
        return self._settle(protocol.Answer("", [], {}), len(reports))


def test_who_has_nothing_to_report_says_now_and_then_that_he_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "_ALIVE_EVERY", 1.5)
    offers = Offers(TOLD, BOOT, Spool(str(tmp_path)), print)
    offers.at = []
    until = time.monotonic() + 10.0
    offers.run(lambda: len(offers.at) > 1 or time.monotonic() > until)
    first, second = offers.at
    assert 1.2 <= second - first < 8.0


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({}, ""),
        ({"node": ""}, ""),
        ({"port": 0}, "port"),
        ({"port": True}, "port"),
        ({"controllers": []}, "controllers"),
        ({"controllers": ["-oProxy"]}, "controllers"),
        ({"kernel_log": "kmsg"}, "kernel_log"),
        ({"node": "a b"}, "node"),
        ({"other": 1}, "other"),
        ({"catalogue": {}}, ""),
        ({"catalogue": {"xid": {"79": {"action": "drain_and_report"}}}}, ""),
        ({"catalogue": {"xid": {"79": {"action": "explode"}}}}, "catalogue"),
        ({"catalogue": {"xid": {"999": {"action": "reboot"}}}}, "catalogue"),
        ({"catalogue": []}, "catalogue"),
    ],
)
def test_settings_are_checked(tmp_path: Path, change: dict[str, Any], wrong: str) -> None:
    path = tmp_path / "agent.json"
    path.write_text(json.dumps({"controllers": ["head1"], "port": 6838, "controller_uid": 990, **change}))
    if wrong:
        with pytest.raises(config.Misconfigured, match=wrong):
            config.load(str(path))
    else:
        assert config.load(str(path)).node == os.uname().nodename.partition(".")[0]


def test_own_disks_of_this_machine_and_of_none(tmp_path: Path) -> None:
    (tmp_path / "block" / "dm-3" / "slaves" / "sda2").mkdir(parents=True)
    (tmp_path / "block" / "sda").mkdir()
    (tmp_path / "mountinfo").write_text("24 22 253:3 / / rw,relatime shared:3 - xfs /dev/mapper/vg0-root rw\n")
    assert disks.own(str(tmp_path / "mountinfo"), str(tmp_path / "block")) == {"dm-3", "sda"}
    assert disks.own(str(tmp_path / "absent"), str(tmp_path / "block")) is None


def test_the_site_says_what_follows_from_an_xid(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(XID79 + "\n")
    kept = Spool(str(tmp_path))
    told = TOLD._replace(catalogue={"xid": {"79": {"action": "drain_and_report"}}})
    Agent(told, BOOT, kept, opened(str(tmp_path / "log"), BOOT, Position())).step()
    assert [one["action"] for one in kept.oldest(9)] == ["drain_and_report"]
