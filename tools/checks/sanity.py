# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""ansible-test's sanity tests, all of them, without ignore files."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator

from . import junit, process
from .process import BUILD, CHECKOUT, Environment, Result, Timer

PART = "sanity"
# Seconds; at the lowest priority beside the lab.
DEADLINE = 2400
COPY = BUILD / "sanity" / "ansible_collections" / "mission_control" / "job_recovery"

# ansible-test starts its own environments with get-pip, which it wants to download from a place that a site may not
# reach. Python's own ensurepip does the same.
GET_PIP = "import ensurepip\n\nensurepip.bootstrap(default_pip=True)\n"


def check(environment: Environment) -> Iterator[Result]:
    """Yield one result for each sanity test."""
    timer = Timer()
    ignores = [name for name in process.tracked_files() if name.startswith("tests/sanity/ignore")]
    yield Result(PART, "no ignore files", not ignores, timer.seconds, " ".join(ignores))

    unpack_archive(environment)
    provide_get_pip(environment)
    timer = Timer()
    argv = ["ansible-test", "sanity", "--local", "--python", python_version(environment), "--junit", "--color", "no"]
    problem = process.run(argv, environment, deadline=DEADLINE, directory=COPY)
    results = [
        result for report in sorted((COPY / "tests/output/junit").glob("*.xml")) for result in junit.read(PART, report)
    ]
    yield from results
    if problem and all(result.passed for result in results):
        yield Result(PART, "ansible-test sanity", False, timer.seconds, problem)
    elif not results:
        yield Result(PART, "ansible-test sanity", False, timer.seconds, "ran no test")


def unpack_archive(environment: Environment) -> None:
    """Unpack the collection's archive where ansible-test wants a collection: what is checked is what users get.

    The lab and the build tools are not in it and need not look like a collection's plugins; `make lint` checks them.
    The folder is a git repository of its own: ansible-test would otherwise ask the checkout's, where it is ignored.
    """
    shutil.rmtree(COPY, ignore_errors=True)
    COPY.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as folder:
        archive = _output(["tools/dist", folder], environment)
        _output(["tar", "-xzf", archive, "-C", str(COPY)], environment)
    _output(["git", "init", "--quiet", str(COPY)], environment)


def provide_get_pip(environment: Environment) -> None:
    """Put our get-pip where ansible-test keeps the one that it downloaded; its name holds the wanted version of pip."""
    code = (
        "from ansible_test._internal.python_requirements import get_venv_packages as g\n"
        "from ansible_test._internal.host_configs import NativePythonConfig as c\n"
        "import sys; print(g(c(version='%d.%d' % sys.version_info[:2], path=sys.executable))['pip'])"
    )
    version = _output(["python", "-c", code], environment)
    script = pathlib.Path(environment["HOME"]) / ".ansible/test/cache" / ("get_pip_%s.py" % version.replace(".", "_"))
    if not script.exists():
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text(GET_PIP, encoding="utf-8")


def python_version(environment: Environment) -> str:
    """Version of the tool environment's Python, such as 3.11."""
    return _output(["python", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], environment)


def _output(argv: list[str], environment: Environment) -> str:
    """What a short command prints; an error if it fails."""
    answer = subprocess.run(argv, cwd=CHECKOUT, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return answer.stdout.strip()
