# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every piece of the corpus of kernel lines, and what must hold for all of them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.logs import kernel
from ansible_collections.mission_control.job_recovery.plugins.module_utils.logs.model import (
    ACTIONS,
    APPLICATION,
    HARDWARE,
    IGNORE,
    NODE_ACTIONS,
    REPORT,
    UNKNOWN,
    VERDICTS,
    Finding,
)

CORPUS = Path(__file__).parent / "corpus" / "kernel.txt"
REPORTED = re.compile(r"[\w.-]+/[\w.-]+#\d+")


@dataclass(frozen=True)
class Piece:
    """One labelled piece of a kernel log."""

    code: str
    verdict: str
    action: str
    source: str
    more: dict[str, str]
    text: str


def _pieces() -> list[Piece]:
    found = []
    for part in re.split(r"(?m)^== ", CORPUS.read_text("utf-8"))[1:]:
        head, text = part.rstrip("\n").split("\n", 1)
        code, verdict, action, source, *more = head.split()
        found.append(Piece(code, verdict, action, source, dict(one.split("=") for one in more), text + "\n"))
    return found


PIECES = _pieces()


def _decides(text: str) -> Optional[Finding]:
    found = kernel.read(text)
    return max(found, key=_firmness) if found else None


def _firmness(finding: Finding) -> int:
    return ACTIONS.index(finding.action)


def test_corpus_is_large_and_half_of_it_reported_by_others() -> None:
    cited = [piece for piece in PIECES if REPORTED.fullmatch(piece.source)]
    assert {piece.source for piece in PIECES if piece not in cited} == {"NVIDIA", "Slurm", "Linux"}
    assert len(PIECES) >= 170
    assert len(cited) * 2 >= len(PIECES)
    assert {piece.verdict for piece in PIECES} == {*VERDICTS, "-"}
    assert {piece.action for piece in PIECES} == {*ACTIONS, "-"}


@pytest.mark.parametrize("piece", PIECES, ids=lambda piece: "%s-%s" % (piece.code, piece.source))
def test_piece(piece: Piece) -> None:
    finding = _decides(piece.text)
    if piece.code == "none":
        assert finding is None
        return
    assert finding is not None
    assert (finding.code, finding.verdict, finding.action) == (piece.code, piece.verdict, piece.action)
    assert {name: str(getattr(finding, name)) for name in piece.more} == piece.more


@pytest.mark.parametrize("piece", PIECES, ids=lambda piece: "%s-%s" % (piece.code, piece.source))
def test_what_holds_for_all_findings(piece: Piece) -> None:
    for finding in kernel.read(piece.text):
        assert finding.verdict in VERDICTS
        assert finding.action in ACTIONS
        if finding.verdict == UNKNOWN:
            assert finding.action in (REPORT, IGNORE)
        if piece.verdict == APPLICATION:
            assert finding.verdict != HARDWARE
            assert finding.action not in NODE_ACTIONS


@pytest.mark.parametrize("piece", PIECES, ids=lambda piece: "%s-%s" % (piece.code, piece.source))
def test_line_by_line_is_the_same_as_all_at_once(piece: Piece) -> None:
    log = kernel.KernelLog()
    told = [one for line in piece.text.splitlines() for one in log.feed(line)] + log.flush(None)
    assert {one.code for one in told} == {one.code for one in kernel.read(piece.text)}
    best = _decides(piece.text)
    if best is not None:
        assert max(map(_firmness, told)) == _firmness(best)
