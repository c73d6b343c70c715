# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the ledger is dropped: only by its name, typed at a terminal, or by a variable."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import pty
import re
import select
import signal
import subprocess
import sys
import time
from typing import Any, Optional

import pytest

ROLE = "mission_control.job_recovery.ledger"
QUESTION = b"press Enter to keep it"
NEXT = b"Note the answer"
_SECONDS = 180
# a session of its own, whose terminal this becomes: the question is asked in the foreground only
_AT_TERMINAL = """
import fcntl, os, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execvp(sys.argv[1], sys.argv[1:])
"""


@pytest.mark.parametrize(
    ("typed", "given", "dropped"),
    [
        ("recovery_history", {}, True),
        (" recovery_history ", {}, True),
        ("", {}, False),
        ("yes", {}, False),
        ("recovery_histor", {}, False),
        (None, {}, False),  # no terminal
        (None, {"uninstall_ledger": True}, True),
        (None, {"uninstall_ledger": "no"}, False),
    ],
)
def test_only_its_name_drops_it(
    tmp_path: pathlib.Path, typed: Optional[str], given: dict[str, Any], dropped: bool
) -> None:
    assert run(tmp_path, typed, given) is dropped


def test_check_mode_does_not_ask(tmp_path: pathlib.Path) -> None:
    assert run(tmp_path, None, {}, "--check") is False


def run(folder: pathlib.Path, typed: Optional[str], given: dict[str, Any], *options: str) -> bool:
    """What is noted after the question: whether the ledger is to be dropped."""
    (folder / "play.json").write_text(json.dumps([{
        "hosts": "all",
        "gather_facts": False,
        "tasks": [
            {"ansible.builtin.include_role": {"name": ROLE, "tasks_from": "ask.yml"}},
            {"ansible.builtin.debug": {"msg": "dropped: {{ __ledger_dropped }}"}},
        ],
    }]))
    variables = {
        "job_recovery_ledger_database": "recovery_history",
        "job_recovery_cluster": "lab",
        "job_recovery_partitions": ["batch"],
        "job_recovery_namespaces": ["training"],
        "ansible_python_interpreter": sys.executable,
        **given,
    }
    argv = ["ansible-playbook", "-i", "one,", "-c", "local", "-e", json.dumps(variables), *options]
    told = at_a_terminal([*argv, str(folder / "play.json")], typed)
    found = re.search(r"dropped: (True|False)", told)
    assert found, told
    return found[1] == "True"


def at_a_terminal(argv: list[str], typed: Optional[str]) -> str:
    """The output of a command that is answered `typed` at a terminal; without a terminal for None."""
    env = {**os.environ, "ANSIBLE_NOCOLOR": "1"}
    if typed is None:
        return subprocess.run(argv, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=_SECONDS, check=True).stdout
    ours, its = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", _AT_TERMINAL, *argv],
        env=env, stdin=its, stdout=its, stderr=its,
    )
    os.close(its)
    try:
        told = _answer(ours, typed)
        assert process.wait(_SECONDS) == 0, told
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # the run and its workers
        process.wait()
        os.close(ours)
    return told


def _answer(terminal: int, typed: str) -> str:
    """Everything that is written to `terminal` until it is closed, which is answered.

    What is typed just as the question appears is thrown away by it, so it is typed again until the run goes on.
    """
    told, typed_at, end = b"", 0.0, time.monotonic() + _SECONDS
    while time.monotonic() < end:
        asked = QUESTION in told and NEXT not in told
        if asked and time.monotonic() - typed_at > 3:
            os.write(terminal, typed.encode() + b"\r")
            typed_at = time.monotonic()
        if not select.select([terminal], [], [], 0.5)[0]:
            continue
        try:
            part = os.read(terminal, 65536)
        except OSError:  # closed at its other end
            part = b""
        if not part:
            break
        told += part
    assert typed_at, told
    return told.decode(errors="replace")
