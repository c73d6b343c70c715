# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Private munged daemons that share a key: one for each host of a small cluster, ended by their pids.

Where the program is missing the tests that need it are skipped with a hint, unless JOB_RECOVERY_TESTS_NEED_MARIADB is
set (as `make test` does).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Iterator

import pytest

_START_SECONDS = 20.0


class Munge:
    """The daemons of a cluster."""

    def __init__(self, folder: Path, program: str) -> None:
        self.folder = folder
        self._program = program
        self._processes: list[subprocess.Popen[bytes]] = []
        (folder / "key").write_bytes(os.urandom(1024))
        (folder / "key").chmod(0o400)
        folder.chmod(0o755)

    def socket(self, origin: str) -> str:
        """The socket of a daemon, started now, whose credentials bear this address."""
        path = self.folder / ("s-%s" % origin)
        files = ["--%s-file=%s" % (kind, self.folder / ("%s-%s" % (kind, origin))) for kind in ("log", "pid", "seed")]
        argv = [self._program, "--foreground", "--force", "--key-file=%s" % (self.folder / "key"), *files]
        process = subprocess.Popen(
            [*argv, "--socket=%s" % path, "--origin=%s" % origin], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self._processes.append(process)
        until = time.monotonic() + _START_SECONDS
        while not path.exists():
            assert process.poll() is None, (self.folder / ("log-%s" % origin)).read_text()
            assert time.monotonic() < until, "munged does not start"
            time.sleep(0.02)
        return str(path)

    def stop(self) -> None:
        """End the daemons."""
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.wait(10)


@pytest.fixture(scope="session")
def munge_cluster() -> Iterator[Munge]:
    """munge for this session."""
    program = shutil.which("munged") or shutil.which("munged", path="/usr/sbin:/sbin")
    if program is None and os.environ.get("JOB_RECOVERY_TESTS_NEED_MARIADB"):
        pytest.fail("munged is missing")
    if program is None:
        pytest.skip("munged is missing: apt-get install munge")
    folder = Path(tempfile.mkdtemp(prefix="jr-munge-"))
    cluster = Munge(folder, program)
    try:
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(folder, ignore_errors=True)
