# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An event source alone: `source_process.py SOURCE SETTINGS` writes each event as a line of JSON.

At SIGTERM it ends with a line that tells how much memory it and the largest of its commands took, in MB.
"""

from __future__ import annotations

import asyncio
import json
import resource
import runpy
import signal
import sys
import time


async def _run(source: str, settings: str) -> None:
    queue: asyncio.Queue = asyncio.Queue()
    looking = asyncio.ensure_future(runpy.run_path(source)["main"](queue, {"settings": settings}))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, looking.cancel)
    telling = asyncio.ensure_future(_tell(queue))
    try:
        await looking
    except asyncio.CancelledError:
        pass
    telling.cancel()
    kilobytes = sum(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    print(json.dumps({"megabytes": kilobytes / 1024}), flush=True)


async def _tell(queue: asyncio.Queue) -> None:
    while True:
        print(json.dumps({"at": time.time(), **await queue.get()}), flush=True)


asyncio.run(_run(*sys.argv[1:3]))
