# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the logs of jobs say: every piece of the corpus, and what no user may reach by what he writes."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.logs import jobs, signatures, verdict
from ansible_collections.mission_control.job_recovery.plugins.module_utils.logs.model import (
    ACTIONS,
    APPLICATION,
    HARDWARE,
    MAX_LINE_LENGTH,
    MAX_LINES,
    NODE_ACTIONS,
    UNKNOWN,
    VERDICTS,
)

CORPUS = Path(__file__).parent / "corpus" / "jobs.txt"


@dataclass(frozen=True)
class Piece:
    """One labelled piece of a log."""

    code: str
    verdict: str
    source: str
    rank: Optional[int]
    text: str


def _pieces() -> list[Piece]:
    found = []
    for part in re.split(r"(?m)^== ", CORPUS.read_text("utf-8"))[1:]:
        head, _newline, text = part.partition("\n")
        code, label, source, *more = head.split()
        rank = int(more[0].partition("=")[2]) if more else None
        found.append(Piece(code, label, source, rank, text))
    return found


PIECES = _pieces()


def test_corpus_is_large_and_half_of_it_reported_by_others() -> None:
    cited = [piece for piece in PIECES if re.fullmatch(r"[\w.-]+/[\w.-]+#\d+", piece.source)]
    assert {piece.source for piece in PIECES if piece not in cited} == {"made"}
    assert len(PIECES) >= 150
    assert len(cited) * 2 >= len(PIECES)
    assert {piece.verdict for piece in PIECES} == set(VERDICTS)
    known = set(signatures.BY_CODE) | {"nothing_found"}
    assert {piece.code for piece in PIECES} <= known


@pytest.mark.parametrize("piece", PIECES, ids=lambda piece: "%s-%s" % (piece.code, piece.source))
def test_piece(piece: Piece) -> None:
    found = jobs.findings(piece.text)
    diagnosis = verdict.diagnose(found)
    assert (diagnosis.why, diagnosis.verdict) == (piece.code, piece.verdict), [one.code for one in found]
    assert diagnosis.action not in NODE_ACTIONS
    if piece.rank is not None:
        assert diagnosis.findings[0].rank == piece.rank


def test_no_fault_of_an_application_is_called_the_hardwares() -> None:
    called = [verdict.diagnose(jobs.findings(piece.text)).verdict for piece in PIECES if piece.verdict == APPLICATION]
    assert called
    assert HARDWARE not in called


def test_no_row_takes_a_node_out_of_service() -> None:
    for row in signatures.BY_CODE.values():
        assert row.action in ACTIONS
        assert row.action not in NODE_ACTIONS
        assert row.verdict in VERDICTS


def test_every_word_has_a_mark_and_every_mark_a_word() -> None:
    for row in signatures.SIGNATURES:
        for words in row.words:
            assert words == words.lower()
            assert any(mark in part for part in words.split(" + ") for mark in signatures.MARKS), words
    assert all(jobs._WORDS.values()), [mark for mark, words in jobs._WORDS.items() if not words]


WATCHDOG = (
    "[rank{r}]:[E1 ProcessGroupNCCL.cpp:1785] [PG ID {pg} PG GUID {pg}(x) Rank {r}] Exception (either an error or "
    "timeout) detected by watchdog at work: {stuck}, last enqueued NCCL work: {enqueued}, last completed NCCL work: "
    "{completed}."
)
WORK = (
    "[rank{r}]:[E1 ProcessGroupNCCL.cpp:616] [PG ID {pg} PG GUID {pg}(x) Rank {r}] Watchdog caught collective "
    "operation timeout: WorkNCCL(SeqNum={n}, OpType={op}, NumelIn={size}, NumelOut={size}, Timeout(ms)=600000) ran "
    "for 600001 milliseconds before timing out."
)


def _states(rows: list[tuple[int, int, int, int]], pg: int = 0) -> str:
    return "\n".join(
        WATCHDOG.format(r=rank, pg=pg, stuck=stuck, enqueued=enqueued, completed=completed)
        for rank, stuck, enqueued, completed in rows
    )


@pytest.mark.parametrize(
    ("text", "behind"),
    [
        pytest.param(_states([(r, 50, 52, 49) for r in range(8)]), [], id="all wait alike"),
        pytest.param(
            _states([*((r, 50, 52, 49) for r in range(7)), (7, 40, 42, 39)]), [7], id="one never enqueued it"
        ),
        pytest.param(
            _states([*((r, 50, 52, 49) for r in range(7)), (7, 50, 52, 48)]), [7], id="one completed less"
        ),
        pytest.param(_states([(r, 50, 50 + r, 49) for r in range(8)]), [], id="how far ahead they ran says nothing"),
        pytest.param(
            _states([*((r, 50, 52, 49) for r in range(3)), *((r, 40, 42, 39) for r in range(3, 8))]), [],
            id="most of them would be to blame",
        ),
        pytest.param(
            "NCCL INFO comm 0x1 rank 0 nranks 8 cudaDev 0\n" + _states([(r, 50, 52, 49) for r in range(8) if r != 5]),
            [5], id="one alone is silent",
        ),
        pytest.param(
            "nranks 8\n" + _states([(0, 50, 52, 49)]), [], id="the log of one rank tells nothing of the others"
        ),
        pytest.param(
            "nranks 8\n" + _states([(r, 50, 52, 49) for r in range(6)], pg=3), [],
            id="a part of the job waits: others have no reason to",
        ),
        pytest.param(
            _states([(0, 50, 52, 49), (1, 50, 52, 49)])
            + "\n   [7] finished collective #12, but didn't join collective #13 (count from 1)",
            [7], id="the desync report names it",
        ),
        pytest.param(
            "RuntimeError: [Rank 0]: Ranks 3, 6 failed to pass monitoredBarrier in 30000 ms\nworld_size=16", [3, 6],
            id="the barrier names them",
        ),
    ],
)
def test_rank_that_is_behind(text: str, behind: list[int]) -> None:
    found = [one for one in jobs.findings(text) if one.code == "rank_behind"]
    assert [one.rank for one in found] == behind
    assert all(one.verdict == UNKNOWN and one.cause for one in found)


@pytest.mark.parametrize(
    ("works", "mismatched"),
    [
        ([(0, 0, 5, "ALLREDUCE", 10), (1, 0, 5, "BROADCAST", 10)], True),
        ([(0, 0, 5, "ALLREDUCE", 10), (1, 0, 5, "ALLREDUCE", 11)], True),
        ([(0, 0, 5, "ALLREDUCE", 10), (1, 0, 5, "ALLREDUCE", 10)], False),
        ([(0, 0, 5, "ALLREDUCE", 10), (1, 1, 5, "BROADCAST", 10)], False),
        ([(0, 0, 5, "_ALLGATHER_BASE", 10), (1, 0, 5, "_ALLGATHER_BASE", 12)], False),
    ],
)
def test_ranks_that_wait_for_different_things(works: list, mismatched: bool) -> None:
    text = "\n".join(WORK.format(r=r, pg=pg, n=n, op=op, size=size) for r, pg, n, op, size in works)
    diagnosis = verdict.diagnose(jobs.findings(text))
    assert (diagnosis.verdict == APPLICATION) is mismatched
    assert diagnosis.why == ("nccl_mismatch" if mismatched else "nccl_timeout")


def test_what_is_kept_does_not_grow() -> None:
    line = "CUDA error: out of memory " + "x" * 1000
    found = jobs.findings("\n".join([line] * 200))
    assert [(one.code, one.count) for one in found] == [("cuda_oom", 200)]
    assert len(found[0].lines) == MAX_LINES
    assert all(len(text) <= MAX_LINE_LENGTH for dummy, text in found[0].lines)


def test_numbers_of_lines_and_times() -> None:
    log = jobs.JobLog()
    log.feed("a\nSegmentation fault\n", 100.0)
    log.feed("b\r 10%\rSegmentation fault", 200.0)
    found = log.findings()[0]
    assert (found.first, found.last, [number for number, dummy in found.lines]) == (100.0, 200.0, [2, 4])


def test_colours_and_progress_bars_hide_nothing() -> None:
    assert [one.code for one in jobs.findings("10%\r20%\r\x1b[31mSegmen\x1b[0mtation fault\x1b[0m\r")] == ["segfault"]


@pytest.mark.parametrize(
    "unit",
    ["[PG ID ", "Traceback (most recent call last)", "[rank1]: ", "a.b", "1", " ", "[1,", "(x", "WorkNCCL(SeqNum=",
     "Ranks 1, ", "error: ", "\x1b[0;", "nranks ", "mlx5_", "pid=", "ab-", "0000:00:", "[0, ", "\r", "x: "],
)
def test_hostile_lines_cost_no_more_than_others(unit: str) -> None:
    def seconds(size: int) -> float:
        text = "Traceback (most recent call last)\nnccl watchdog error " + unit * (size // len(unit))
        before = time.process_time()
        jobs.findings(text)
        return time.process_time() - before

    seconds(1000)
    assert seconds(1_000_000) < 3
