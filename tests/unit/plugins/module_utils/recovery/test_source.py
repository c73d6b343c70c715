# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import asyncio
import logging

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import TimedOut
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import source


class Looks:
    """Answers one after the other; the last one for ever."""

    def __init__(self, *answers):
        self.answers, self.calls = list(answers), 0

    async def __call__(self):
        answer = self.answers[min(self.calls, len(self.answers) - 1)]
        self.calls += 1
        if isinstance(answer, Exception):
            raise answer
        return answer


async def _run(looks, seconds=0.8, **kwargs):
    queue = asyncio.Queue()
    task = asyncio.create_task(source.keep_looking("test", queue, looks, lambda: 0.0, **kwargs))
    await asyncio.sleep(seconds)
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    return [queue.get_nowait() for _turn in range(queue.qsize())]


def test_events_of_every_look_are_put_and_errors_do_not_end_it():
    looks = Looks([{"a": 1}], ValueError("odd"), TimedOut("scontrol: no answer in 10 s"), [{"b": 2}, {"c": 3}], [])
    assert asyncio.run(_run(looks, seconds=1.6)) == [{"a": 1}, {"b": 2}, {"c": 3}]


def test_an_error_is_logged_once_and_its_end_is_told(caplog):
    with caplog.at_level(logging.WARNING, logger="job_recovery.test"):
        asyncio.run(_run(Looks(TimedOut("down"), TimedOut("down"), []), seconds=1.6))
    first, second = [record.getMessage() for record in caplog.records]
    assert first == "nothing is known: down"
    assert second.startswith("answers again after ")


def test_the_beat_tells_an_error_and_a_failing_beat_is_survived():
    beats = []

    def beat(name, at, error):
        beats.append((name, error))
        raise OSError("disk full")

    events = asyncio.run(_run(Looks(TimedOut("down"), [{"a": 1}], []), beat=beat))
    assert events == [{"a": 1}]
    assert beats == [("test", "down"), ("test", None)]


@pytest.mark.parametrize(("errors", "pause"), [(0, 1.0), (1, 2.0), (3, 8.0), (20, 30.0)])
def test_back_off(errors, pause):
    outage = source.Outage(logging.getLogger("test"))
    for _turn in range(errors):
        outage.report(TimedOut("down"))
    assert outage.pause(1.0) == pause
