# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An event source that runs alone in a process of its own, and what it costs."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from slurmctld import CHECKOUT, used

_SOURCES = CHECKOUT / "extensions" / "eda" / "plugins" / "event_source"


class Source:
    """The running source, and when it told of which target first.

    Args:
        folder: for its settings and its state.
        name: of the source.
        settings: besides the cluster's name and the folder.
    """

    def __init__(self, folder: Path, name: str, settings: Mapping[str, Any]) -> None:
        path = folder / "settings.yml"
        path.write_text(json.dumps({"cluster": "scale", "state_dir": str(folder), **settings}), encoding="utf-8")
        program = Path(__file__).with_name("source_process.py")
        argv = [sys.executable, str(program), str(_SOURCES / (name + ".py")), str(path)]
        self.process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        self.told: dict[str, float] = {}
        self.megabytes = 0.0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def seconds(self) -> float:
        """Seconds of a core that it and its commands have used."""
        return used(self.process.pid)

    def end(self) -> None:
        """Stop it, which tells how much memory it took."""
        self.process.send_signal(signal.SIGTERM)
        self._reader.join(60)
        self.process.wait(10)

    def _read(self) -> None:
        for line in self.process.stdout or ():
            event = json.loads(line)
            if "fault" not in event:
                self.megabytes = event["megabytes"]
                continue
            for target in event["fault"]["targets"]:
                self.told.setdefault(target.get("node") or target["job"], event["at"])


def share_of(seconds: Callable[[], float], window: float) -> float:
    """Of `window` seconds of the clock the share that a process uses of one core from now on."""
    before = seconds()
    time.sleep(window)
    return (seconds() - before) / window


def percentile(values: list[float], percent: int) -> float:
    """The value that so many of a hundred are not above."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]
