# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Evidence of a node: collected there, kept on the controller."""

from __future__ import annotations

import os
import random
import string
import time
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import Unreachable, Unreadable
from ansible_collections.mission_control.job_recovery.plugins.module_utils.node import answer, cli
from ansible_collections.mission_control.job_recovery.plugins.module_utils.node import evidence as on_node
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import evidence

from .steps.site import MACHINE_ID, Site, settings_of, work_of

HUNG = "task nfsd:7 blocked for more than 120 seconds"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> cli.Here:
    """A node whose kernel log `dmesg` tells, with a /proc of its own."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", "%s/bin:/usr/bin:/bin" % tmp_path)
    program(tmp_path, "dmesg", 'echo "%s"' % HUNG)
    proc = tmp_path / "proc"
    process(proc, 1, "systemd", "S")
    process(proc, 77, "my (odd) name", "D")
    (proc / "77/stack").write_text("[<0>] nfs_wait_bit_killable+0x1e\n", encoding="utf-8")
    (proc / "77/wchan").write_text("nfs_wait_bit", encoding="utf-8")
    (proc / "77/cmdline").write_text("tool\0--password=hunter2\0", encoding="utf-8")
    (proc / "loadavg").write_text("88.00 80.00 70.00 1/900 4711\n", encoding="utf-8")
    return cli.Here("/nonexistent", str(proc))


def program(folder: Path, name: str, text: str) -> None:
    path = folder / "bin" / name
    path.write_text("#!/bin/sh\n%s\n" % text, encoding="utf-8")
    path.chmod(0o755)


def process(proc: Path, pid: int, name: str, state: str) -> None:
    folder = proc / str(pid)
    folder.mkdir(parents=True)
    (folder / "stat").write_text("%d (%s) %s 1 0 0 0" % (pid, name, state), encoding="utf-8")


def test_what_a_node_tells(here: cli.Here) -> None:
    data = on_node.collect(here, 256)
    files = evidence.unpack(data)
    assert (sorted(files), data["missing"]) == (["kernel.log", "processes.txt"], {})
    assert HUNG in files["kernel.log"].decode()
    told = files["processes.txt"].decode()
    assert "load: 88.00" in told
    assert "processes in uninterruptible sleep: 1" in told
    assert "pid 77 (my (odd) name) state D parent 1 in nfs_wait_bit" in told
    assert "nfs_wait_bit_killable" in told
    assert "hunter2" not in told
    assert "systemd" not in told


def test_the_newest_lines_are_kept(here: cli.Here, tmp_path: Path) -> None:
    program(tmp_path, "dmesg", "seq 1 100000; echo the last one")
    told = evidence.unpack(on_node.collect(here, 4))["kernel.log"]
    assert len(told) <= 4096
    assert told.endswith(b"99999\n100000\nthe last one\n")


def test_an_old_dmesg_and_a_journal_do_as_well(here: cli.Here, tmp_path: Path) -> None:
    program(tmp_path, "dmesg", 'test $# = 0 || exit 1; echo "old %s"' % HUNG)
    assert evidence.unpack(on_node.collect(here, 4))["kernel.log"] == ("old %s\n" % HUNG).encode()
    program(tmp_path, "dmesg", "echo not permitted >&2; exit 1")
    program(tmp_path, "journalctl", 'echo "journal %s"' % HUNG)
    assert evidence.unpack(on_node.collect(here, 4))["kernel.log"] == ("journal %s\n" % HUNG).encode()


def test_commands_that_hang_cost_seconds_and_the_rest_is_told(here: cli.Here, tmp_path: Path) -> None:
    for name in ("dmesg", "journalctl"):
        program(tmp_path, name, "sleep 60")
    begun = time.monotonic()
    data = on_node.collect(here, 4, 0.2)
    assert time.monotonic() - begun < 5
    assert sorted(data["files"]) == ["processes.txt"]
    assert "did not end" in data["missing"]["kernel.log"]


def test_what_does_not_fit_into_an_answer_is_halved(here: cli.Here, tmp_path: Path) -> None:
    noise = "".join(random.Random(7).choices(string.ascii_letters + string.digits, k=1000000))
    (tmp_path / "noise").write_text(noise, encoding="ascii")
    program(tmp_path, "dmesg", "cat %s/noise" % tmp_path)
    data = on_node.collect(here, 1000)
    assert sum(map(len, data["files"].values())) < answer.MAX_BYTES
    kept = evidence.unpack(data)["kernel.log"]
    assert len(kept) > 100000
    assert noise.encode().endswith(kept)


def test_files_are_for_the_service_alone(tmp_path: Path) -> None:
    os.umask(0o022)
    folder = Path(evidence.save(str(tmp_path), 7, "node1", {"kernel.log": b"one"}))
    evidence.save(str(tmp_path), 7, "node1", {"kernel.log": b"two"})
    assert folder == tmp_path / "evidence/incident-7/node1"
    assert [path.name for path in folder.iterdir()] == ["kernel.log"]
    assert (folder / "kernel.log").read_bytes() == b"two"
    assert (folder / "kernel.log").stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("node", ["../../etc", "", ".", "a/b", "-x"])
def test_a_node_is_no_path(tmp_path: Path, node: str) -> None:
    with pytest.raises(Unreadable):
        evidence.save(str(tmp_path), 7, node, {"kernel.log": b"x"})


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"files": ["kernel.log"]},
        {"files": {"../../x.log": ""}},
        {"files": {"kernel.log": "no base64!"}},
        {"files": {"kernel.log": "AAAA"}},
        {"files": {"kernel.log": None}},
    ],
)
def test_an_answer_that_is_none(data: dict[str, Any]) -> None:
    with pytest.raises(Unreadable):
        evidence.unpack(data)


def test_the_newest_incidents_are_kept(tmp_path: Path) -> None:
    assert evidence.prune(str(tmp_path), 3, ()) == 0
    for number in (2, 9, 10, 100):
        evidence.save(str(tmp_path), number, "node1", {"kernel.log": b"x"})
    (tmp_path / "evidence/notes").mkdir()  # a person's
    assert evidence.prune(str(tmp_path), 1, {2, 3}) == 2
    assert sorted(path.name for path in (tmp_path / "evidence").iterdir()) == ["incident-100", "incident-2", "notes"]


# ---- the steps ----


@pytest.fixture
def site(here: cli.Here) -> Site:
    made = Site()
    made.add("node1", "IDLE", "DRAIN")
    made.helper["ssh-node1", "evidence"] = on_node.collect(here, 4)
    return made


def test_evidence_is_saved_before_a_reboot(site: Site, tmp_path: Path) -> None:
    tools = site.tools(state_dir=str(tmp_path))
    outcome = site.act_one(work_of("save_evidence", site.machines["node1"]), tools)
    folder = str(tmp_path / "evidence/incident-7/node1")
    assert (outcome.status, outcome.remember) == ("done", {"evidence": folder})
    assert outcome.proof["folder"] == folder
    assert sorted(outcome.proof["bytes"]) == ["kernel.log", "processes.txt"]
    assert site.asked == [("ssh-node1", "evidence", "--kib", "256", "--if-machine-id", MACHINE_ID)]


@pytest.mark.parametrize(
    "told", [Unreachable("no answer"), {}, {"files": {"kernel.log": "AAAA"}}], ids=["silent", "empty", "damaged"]
)
def test_evidence_that_cannot_be_had_keeps_no_repair(site: Site, tmp_path: Path, told: Any) -> None:
    site.helper["ssh-node1", "evidence"] = told
    outcome = site.act_one(work_of("save_evidence", site.machines["node1"]), site.tools(state_dir=str(tmp_path)))
    assert (outcome.status, outcome.remember) == ("done", {})
    assert outcome.why.startswith("no evidence was saved: ")


def test_a_full_disk_keeps_no_repair(site: Site, tmp_path: Path) -> None:
    (tmp_path / "evidence").write_text("", encoding="utf-8")  # no folder can be made here
    outcome = site.act_one(work_of("save_evidence", site.machines["node1"]), site.tools(state_dir=str(tmp_path)))
    assert (outcome.status, outcome.why.startswith("no evidence was saved")) == ("done", True)


def test_a_site_may_keep_none(site: Site, tmp_path: Path) -> None:
    tools = site.tools(state_dir=str(tmp_path), nodes={"evidence_kib": 0})
    assert site.act_one(work_of("save_evidence", site.machines["node1"]), tools).status == "done"
    assert site.asked == []


def test_who_lost_his_claim_asks_nobody(site: Site, tmp_path: Path) -> None:
    site.lost = {7}
    outcome = site.act_one(work_of("save_evidence", site.machines["node1"]), site.tools(state_dir=str(tmp_path)))
    assert (outcome.status, site.asked) == ("waiting", [])


def test_a_node_that_is_not_fit_goes_to_a_person_with_evidence(site: Site, tmp_path: Path) -> None:
    site.node("node1", "IDLE", "DRAIN", "INVALID_REG")
    outcome = site.act_one(work_of("verify", site.machines["node1"]), site.tools(state_dir=str(tmp_path)))
    assert outcome.status == "failed"
    assert outcome.remember == {"evidence": str(tmp_path / "evidence/incident-7/node1")}
    site.asked.clear()
    site.node("node1", "IDLE", "DRAIN")
    assert site.act_one(work_of("verify", site.machines["node1"]), site.tools(state_dir=str(tmp_path))).status == "done"
    assert site.asked == []


def test_the_settings_have_a_default() -> None:
    assert (settings_of().nodes.evidence_kib, settings_of().nodes.evidence_incidents) == (256, 500)
