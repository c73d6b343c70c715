# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The demonstration: the cases without recovery, the installation, the cases with it, and a timeline of each incident.

Exit code 0 says that every job finished with recovery, and that the person's node was left alone.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import time
from collections.abc import Sequence

from .. import lifecycle, progress
from ..errors import LabError
from ..instance import Instance, from_environment
from . import timeline
from .cases import CASES, DEADLINE, PATIENCE, Case, Story, broken, tidy
from .cluster import Cluster

_PLAN = """
{cases} cases: first without recovery, as the cluster is; then recovery is installed; then the same cases with it.
Each case breaks something under a running job that needs 20 seconds. Seconds at the left of a line count from the
fault; those in brackets from the beginning of the demonstration. It takes about 25 minutes.
"""


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Options of `lab/demo`."""
    parser = argparse.ArgumentParser(
        prog="lab/demo", description="Bring the lab up, break nodes under running jobs, and see what happens."
    )
    parser.add_argument("--case", action="append", choices=[case.number for case in CASES], help="only this case")
    parser.add_argument("--skip-without", action="store_true", help="do not show the cases without recovery")
    parser.add_argument("--skip-install", action="store_true", help="the collection is installed on the lab already")
    parser.add_argument("--skip-with", action="store_true", help="stop after the cases without recovery")
    return parser.parse_args(argv)


def demo(argv: Sequence[str]) -> int:
    """lab/demo: bring the lab up, run the demonstration; the exit code."""
    options = parse(argv)
    instance = from_environment()
    lifecycle.up(instance, with_kubernetes=True)
    cluster = Cluster(instance)
    cases = [case for case in CASES if not options.case or case.number in options.case]
    told: dict[str, list[Story | None]] = {case.number: [None, None] for case in cases}
    tidy(cluster)  # what an earlier run left when it was broken off
    if not (options.skip_without or options.skip_with or options.skip_install):
        print(_PLAN.format(cases=len(cases)), flush=True)
    if not options.skip_without:
        _headline("WITHOUT recovery: the cluster as it is")
        cluster.recovery(on=False)
        cluster.impatient = True
        for case in cases:
            told[case.number][0] = _tell(cluster, case, PATIENCE, recovery=False)
    if options.skip_with:
        return 0
    if not options.skip_install:
        _headline("INSTALLING: ansible-playbook mission_control.job_recovery.site")
        install(instance)
    cluster.recovery(on=True)
    cluster.impatient = False
    _headline("WITH recovery")
    for case in cases:
        told[case.number][1] = _tell(cluster, case, DEADLINE, recovery=True)
    return _summary(cases, told)


def install(instance: Instance) -> None:
    """Run the site playbook on the lab, its output shown. Raises LabError if it fails."""
    command = [
        "ansible-playbook",
        "-i",
        str(instance.checkout / "inventory" / "lab"),
        "-i",
        str(instance.inventory),
        "mission_control.job_recovery.site",
    ]
    environment = {**os.environ, "LAB_STATE": str(instance.state)}
    try:
        done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, cwd=instance.checkout, timeout=1800)
    except subprocess.TimeoutExpired as exc:
        raise LabError("The installation was not done within 30 minutes; what it says above is where it stood") from exc
    if done.returncode:
        raise LabError("The installation failed; what it says above is the cause")


def _tell(cluster: Cluster, case: Case, patience: float, recovery: bool) -> Story:
    print(f"\nCase {case.number}: {case.title} ({'with' if recovery else 'without'} recovery)", flush=True)
    with broken(cluster):
        begun = time.time()
        try:
            story = case.run(cluster, patience)
        except LabError as exc:
            story = Story()
            story.tell(f"the case could not be shown: {exc}")
        if recovery:
            timeline.show(cluster, story, begun)
        print(f"  => {_verdict(case, story, recovery)}", flush=True)
    return story


def _verdict(case: Case, story: Story, recovery: bool) -> str:
    if recovery:
        return "ends well" if story.finished else "NOT RECOVERED"
    return "ends well by itself" if story.finished else f"without recovery: {case.without}"


def _headline(text: str) -> None:
    print(f"\n{'=' * len(text)}\n{text}\n{'=' * len(text)}", flush=True)
    progress.note(text)


def _summary(cases: Sequence[Case], told: dict[str, list[Story | None]]) -> int:
    _headline("Summary")
    for case in cases:
        without, with_recovery = told[case.number]
        before = "not shown" if without is None else ("finished" if without.finished else case.without)
        after = f"ends well after {with_recovery.lines[-1][0]:.0f} s" if with_recovery.finished else "NOT RECOVERED"
        print(f"  {case.number:>2}  {case.title:<62} without: {before}; with: {after}")
    good = sum(1 for case in cases if told[case.number][1].finished)
    print(f"\n{good} of {len(cases)} cases end well with recovery", flush=True)
    return 0 if good == len(cases) else 1
