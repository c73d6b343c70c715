# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Unit tests: pytest in the tool environment."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

from . import junit, process
from .process import BUILD, Environment, Result, Timer

PART = "unit"
# Seconds.
DEADLINE = 1800
APT_DEADLINE = 600
# Each starts a MariaDB of its own.
MAX_PROCESSES = 4
# What the tests start for themselves, by the program that shows that it is there: Debian's package.
PROGRAMS = {"mariadbd": "mariadb-server-core", "mariadb": "mariadb-client-core", "munged": "munge"}
_SYSTEM_PATH = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))


def check(environment: Environment) -> Iterator[Result]:
    """Yield one result for each unit test; files that cannot be imported are failed tests as well."""
    timer = Timer()
    problem = install_programs(environment)
    if problem:
        yield Result(PART, "programs", False, timer.seconds, problem)
    environment = {**environment, "JOB_RECOVERY_TESTS_NEED_MARIADB": "1"}
    report = BUILD / "unit.xml"
    report.parent.mkdir(exist_ok=True)
    report.unlink(missing_ok=True)
    # they wait for half of their time, so one more than there are processors
    count = min(MAX_PROCESSES, len(os.sched_getaffinity(0)) + 1)
    workers = ["--numprocesses=%d" % count, "--dist=worksteal"]
    argv = ["python", "-m", "pytest", "--quiet", *workers, "--junitxml", str(report), "tests/unit"]
    problem = process.run(argv, environment, deadline=DEADLINE)
    results = list(junit.read(PART, report)) if report.exists() else []
    yield from results
    if problem and all(result.passed for result in results):
        yield Result(PART, "pytest", False, timer.seconds, problem)


def install_programs(environment: Environment) -> str:
    """Install what is missing of PROGRAMS, as root; what went wrong, empty when all are there."""
    missing = sorted(package for program, package in PROGRAMS.items() if not shutil.which(program, path=_SYSTEM_PATH))
    if not missing:
        return ""
    if os.geteuid():
        return "missing: %s; install them, or run this as root" % " ".join(missing)
    environment = {**environment, "DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "install", "-qq", "--yes", "--no-install-recommends", *missing]
    if not process.run(install, environment, deadline=APT_DEADLINE):
        return ""
    # package lists that are missing or too old
    process.run(["apt-get", "update", "-qq"], environment, deadline=APT_DEADLINE)
    problem = process.run(install, environment, deadline=APT_DEADLINE)
    return "%s: %s" % (" ".join(install), problem) if problem else ""
