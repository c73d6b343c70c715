# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Progress for people: one line per step, with the seconds since the command started.

    with progress.step("Starting 5 containers"):
        ...
prints ``[  3.1 s] Starting 5 containers: 2.4 s`` at its end, in one piece, so that steps may run side by side.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator

_started = time.monotonic()
_print_lock = threading.Lock()
#: A step that takes longer than this announces itself when it starts, so that nobody looks at a silent screen.
_SILENT_SECONDS = 3.0


def elapsed() -> float:
    """Seconds since this command started."""
    return time.monotonic() - _started


def note(text: str) -> None:
    """Print one line with the elapsed time."""
    with _print_lock:
        print(f"[{elapsed():6.1f} s] {text}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def step(text: str) -> Iterator[None]:
    """Report a piece of work: at its end, how long it took; before, if it takes long."""
    begun = time.monotonic()
    announce = threading.Timer(_SILENT_SECONDS, note, [f"{text} ..."])
    announce.daemon = True
    announce.start()
    try:
        yield
    except BaseException:
        note(f"{text}: failed after {time.monotonic() - begun:.1f} s")
        raise
    else:
        note(f"{text}: {time.monotonic() - begun:.1f} s")
    finally:
        announce.cancel()
