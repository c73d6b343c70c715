# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pre-flight: of a thousand nodes, and of the lab."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from measuring import Benchmark, Figure, Stopwatch, Wrong
from simulation import NODES, Simulation

CHECKOUT = Path(__file__).resolve().parents[2]
PLAYBOOK = "mission_control.job_recovery.preflight"
DEADLINE = 600
BUDGET, LAB_BUDGET = 60.0, 30.0
LAB_DEADLINE = 3600


def simulated(folder: Path) -> list[Figure]:
    """A thousand nodes, some of them lost and some not as they should be; that is told, each in one line."""
    with Simulation(folder) as site:
        watch = Stopwatch()
        done = _playbook(["-i", str(site.inventory), PLAYBOOK], DEADLINE)
        figures = watch.figures(BUDGET)
        checks = _checks(site.report, done)
    for check_id, found in site.expected.items():
        if checks[check_id]["found"] != found:
            raise Wrong("%s: expected %r, found %r" % (check_id, found, checks[check_id]["found"]))
    longest = max(len(check["found"]) for check in checks.values())
    if longest > 600:
        raise Wrong("a finding is %d characters long: nobody reads that" % longest)
    if done.returncode == 0:
        raise Wrong("the playbook succeeded although requirements are not met")
    return figures


def lab(_folder: Path) -> list[Figure]:
    """The lab, which is brought up for it where it is not up."""
    instance = os.environ.get("LAB_INSTANCE") or "0"
    was_up = _run(["lab/status"], 60).returncode == 0
    try:
        if not was_up and _run(["lab/up"], LAB_DEADLINE, show=True).returncode:
            raise Wrong("the lab did not come up")
        inventory = CHECKOUT / ".lab" / instance / "inventory" / "hosts.yml"
        watch = Stopwatch()
        done = _playbook(["-i", str(inventory), "-i", str(CHECKOUT / "inventory" / "lab"), PLAYBOOK], DEADLINE)
        figures = watch.figures(LAB_BUDGET)
        if done.returncode:
            raise Wrong("pre-flight of the lab failed:\n%s" % done.stdout[-3000:])
        return figures
    finally:
        if not was_up:
            _run(["lab/down"], 600, show=True)


BENCHMARKS = (
    Benchmark("preflight-%d" % NODES, "pre-flight of %d simulated nodes" % NODES, simulated),
    Benchmark("preflight-lab", "pre-flight of the lab", lab),
)


def _playbook(arguments: list[str], deadline: float) -> subprocess.CompletedProcess[str]:
    return _run(["ansible-playbook", *arguments], deadline)


def _run(argv: list[str], deadline: float, show: bool = False) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_PIPELINING": "1"}
    output = None if show else subprocess.PIPE
    try:
        return subprocess.run(
            argv,
            cwd=CHECKOUT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=None if show else subprocess.STDOUT,
            text=True,
            timeout=deadline,
        )
    except subprocess.TimeoutExpired:
        raise Wrong("%s did not end within %d s" % (argv[0], deadline)) from None


def _checks(report: Path, done: subprocess.CompletedProcess[str]) -> dict[str, dict[str, str]]:
    if not report.exists():
        raise Wrong("there is no report; the playbook ended with %d:\n%s" % (done.returncode, done.stdout[-3000:]))
    return {check["id"]: check for check in json.loads(report.read_text(encoding="utf-8"))["checks"]}
