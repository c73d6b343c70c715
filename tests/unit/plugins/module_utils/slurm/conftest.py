# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import pathlib
import sys
from typing import Any

import pytest

FAKE = pathlib.Path(__file__).parent / "fake_slurm.py"
TOOLS = ("scontrol", "squeue", "sinfo", "sacct", "sacctmgr")


class FakeSlurm:
    """Executables in `bin_dir` and the world that they act on."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.bin_dir = str(folder / "bin")
        self.folder = folder
        self._world = folder / "world.json"
        (folder / "bin").mkdir()
        body = FAKE.read_text(encoding="utf-8")
        for tool in TOOLS:
            self._write(tool, "#!%s -IS\n%s" % (sys.executable, body))
        self.world({"nodes": {}, "jobs": {}})

    def program(self, tool: str, script: str) -> None:
        """Put a shell script in the place of a tool."""
        self._write(tool, "#!/bin/bash\n%s\n" % script)

    def _write(self, tool: str, text: str) -> None:
        path = pathlib.Path(self.bin_dir) / tool
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)

    def world(self, world: dict[str, Any]) -> None:
        self._world.write_text(json.dumps(world), encoding="utf-8")

    @property
    def now(self) -> dict[str, Any]:
        return json.loads(self._world.read_text(encoding="utf-8"))

    def calls(self, *words: str) -> list[list[str]]:
        return [call for call in self.now.get("calls", []) if all(word in call for word in words)]


@pytest.fixture
def fake(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    found = FakeSlurm(tmp_path)
    monkeypatch.setenv("FAKE_SLURM", str(tmp_path / "world.json"))
    return found
