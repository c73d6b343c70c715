# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Many questions at once, with one end for all of them."""

from __future__ import annotations

import queue
import threading
import time
from typing import Callable, Optional, Sequence, TypeVar

Question = TypeVar("Question")
Answer = TypeVar("Answer")


def ask_all(
    questions: Sequence[Question], ask: Callable[[Question], Answer], seconds: float, workers: int = 8
) -> list[Optional[Answer]]:
    """Ask every question in a thread; the answers in their order, None where the time was over before one came.

    The threads are daemons: a server that sends its answer drop by drop holds up neither the others nor the end of the
    process. `ask` must not raise for what can happen; where it does, the first exception is raised here.
    """
    waiting: queue.Queue[tuple[int, Question]] = queue.Queue()
    done: queue.Queue[tuple[int, Optional[Answer], Optional[BaseException]]] = queue.Queue()
    until = time.monotonic() + seconds
    for item in enumerate(questions):
        waiting.put(item)

    def work() -> None:
        while time.monotonic() < until:
            try:
                number, question = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                done.put((number, ask(question), None))
            except BaseException as exc:  # noqa: BLE001 - handed over to the caller
                done.put((number, None, exc))

    for _number in range(min(workers, len(questions))):
        threading.Thread(target=work, daemon=True).start()
    answers: list[Optional[Answer]] = [None] * len(questions)
    for _question in questions:
        try:
            number, answer, failure = done.get(timeout=max(0.0, until - time.monotonic()))
        except queue.Empty:
            break
        if failure is not None:
            raise failure
        answers[number] = answer
    return answers
