# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the log of a job says: its faults, found line by line. Pure.

The text is its user's and hostile: lines are shortened before anything is looked for, every pattern is linear, and how
much is kept does not depend on how much is read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Optional

from . import ranks, signatures
from .model import MAX_LINES, Finding, bounded
from .signatures import Signature

_MAX_LINE = 2048  # characters of a line that are looked at: its beginning and its end
_BLOCK = 256  # lines that are read at once
_MAX_STREAMS = 1024  # interleaved processes whose tracebacks are told apart
_MAX_BEHIND = 8  # ranks that are named

_COLOURS = re.compile(r"\x1b\[[0-9;]{0,20}[A-Za-z]")
_RANKS = (
    re.compile(r"\[rank ?(\d{1,6})\]", re.I),
    re.compile(r"\[\d{1,6},(\d{1,6})\]<std"),  # mpirun --tag-output
    re.compile(r"\brank ?[: ] ?(\d{1,6})\b", re.I),
    re.compile(r"srun: error: [^:]{1,100}: task (\d{1,6}):"),
    re.compile(r"/task:(\d{1,6}) "),  # JAX, TensorFlow
    re.compile(r"^\s{0,8}(\d{1,6}): "),  # srun --label
)
_PID = re.compile(r"\bpid ?[=: ] ?(\d{1,9})\b", re.I)
_PORT = re.compile(r"\b(mlx[45]_[a-z0-9]{1,8}(?::\d{1,3})?)")
_GPU = re.compile(r"\b((?:[0-9a-f]{8}|[0-9a-f]{4}):[0-9a-f]{2}:[0-9a-f]{2})(?:\.[0-9a-f])?\b", re.I)
# What tools that mix the output of several processes put before each line.
_PREFIX = re.compile(
    r"(?:\[rank ?\d{1,6}\]: ?|\s{0,8}\d{1,6}: |\[\d{1,6},\d{1,6}\]<std(?:err|out)>: ?|\([^()]{1,100}\) |[\w.-]{1,80}: )"
)
_TRACEBACK = "Traceback (most recent call last)"
_RAISED = re.compile(r"([A-Za-z_]\w{0,80}(?:\.\w{1,80}){0,12})(?::|$)")


@dataclass
class _Group:
    """All lines of one fault so far."""

    signature: Signature
    rank: Optional[int] = None
    pid: Optional[int] = None
    device: str = ""
    count: int = 0
    first: Optional[float] = None
    last: Optional[float] = None
    lines: list = field(default_factory=list)


def match(line: str) -> Optional[Signature]:
    """The row that knows a line, None for a line that says nothing."""
    low = shortened(line).lower()
    found = len(signatures.SIGNATURES)
    for mark in signatures.MARKS:
        if mark in low:
            for position, first, rest in _WORDS[mark]:
                if position < found and first in low and all(part in low for part in rest):
                    found = position
    return signatures.SIGNATURES[found] if found < len(signatures.SIGNATURES) else None


def shortened(line: str) -> str:
    """The beginning and the end of a huge line."""
    return line if len(line) <= _MAX_LINE else "%s %s" % (line[: _MAX_LINE // 2], line[-_MAX_LINE // 2 :])


def _words() -> dict[str, list[tuple[int, str, tuple[str, ...]]]]:
    """The words of all rows by the first mark that they hold, each with its row's position."""
    found: dict[str, list[tuple[int, str, tuple[str, ...]]]] = {mark: [] for mark in signatures.MARKS}
    for position, row in enumerate(signatures.SIGNATURES):
        for words in row.words:
            parts = words.split(" + ")
            mark = next(mark for mark in signatures.MARKS if any(mark in part for part in parts))
            found[mark].append((position, parts[0], tuple(parts[1:])))
    return found


_WORDS = _words()
_SIGNS = (*signatures.MARKS, _TRACEBACK.lower(), "nranks", "orld_size")


class JobLog:
    """Reads one job's log, in pieces that end with lines."""

    def __init__(self) -> None:
        self._groups: dict[str, _Group] = {}
        self._ranks = ranks.Ranks()
        self._tracebacks: set[str] = set()
        self._number = 0

    def feed(self, text: str, at: Optional[float] = None) -> None:
        """The next lines.

        Args:
            at: when they were written, in seconds since the epoch; None when nobody knows.
        """
        lines = text.split("\n")
        for start in range(0, len(lines), _BLOCK):
            self._read(lines[start : start + _BLOCK], at)

    def findings(self) -> tuple[Finding, ...]:
        """All faults so far, in the order in which they were first seen; ranks that were waited for at the end."""
        found = [_finding(group) for group in self._groups.values()]
        timeout = self._groups.get("nccl_timeout") or self._groups.get("nccl_stuck")
        if timeout is None and not self._ranks.named:
            return tuple(found)
        lines = tuple(timeout.lines) if timeout else ()
        cause = timeout.signature.code if timeout else ""
        if self._ranks.mismatched():
            found.append(_made(signatures.BY_CODE["nccl_mismatch"], lines, None, cause))
        behind = self._ranks.behind()[:_MAX_BEHIND]
        found.extend(_made(signatures.RANK_BEHIND, lines, rank, cause) for rank in behind)
        return tuple(found)

    def _read(self, lines: list[str], at: Optional[float]) -> None:
        """Some lines: what none of them holds is looked for in none of them."""
        joined = "\n".join(lines)
        if "\x1b" in joined:
            joined = _COLOURS.sub("", joined)
            lines = joined.split("\n")
        low = joined.lower()
        marks = [mark for mark in _SIGNS if mark in low]
        if not marks and not self._tracebacks:
            self._number += len(lines)
            return
        for raw, low_line in zip(lines, low.split("\n")):
            self._number += 1
            if self._tracebacks or _holds(low_line, marks):
                for line in raw.split("\r") if "\r" in raw else (raw,):
                    if line:
                        self._take(shortened(line), at)

    def _take(self, line: str, at: Optional[float]) -> None:
        row = match(line)
        if (row is not None and row.family == "nccl") or "nranks" in line or "orld_size" in line:
            self._ranks.take(line)
        if row is not None and row.weight != signatures.Weight.FOLLOWS and _is_mild(line):
            row = None
        if self._tracebacks or _TRACEBACK in line:
            raised = self._traceback(line)
            row = row or (signatures.PYTHON_ERROR if raised else None)
        if row is not None:
            self._keep(row, line, at)

    def _traceback(self, line: str) -> bool:
        """Whether the line ends a traceback of its process: `module.Error: why`."""
        found = _PREFIX.match(line)
        prefix = found.group(0) if found else ""
        rest = line[len(prefix) :]
        if _TRACEBACK in line:
            prefix = line[: line.index(_TRACEBACK)]
            if len(self._tracebacks) < _MAX_STREAMS:
                self._tracebacks.add(prefix.strip())
            return False
        stream = prefix.strip() if prefix.strip() in self._tracebacks else ""
        if stream not in self._tracebacks:
            return False
        if not stream:
            rest = line
        if not rest.strip() or rest[0].isspace() or not _RAISED.match(rest):
            return False
        self._tracebacks.discard(stream)
        return True

    def _keep(self, row: Signature, line: str, at: Optional[float]) -> None:
        group = self._groups.get(row.code)
        if group is None:
            rank, pid = _number(_RANKS, line), _number((_PID,), line)
            group = self._groups[row.code] = _Group(row, rank, pid, _device(row, line), first=at)
        group.count += 1
        group.last = at if at is not None else group.last
        if len(group.lines) < MAX_LINES:
            group.lines.append(bounded(self._number, line))


def findings(text: str, at: Optional[float] = None) -> tuple[Finding, ...]:
    """The faults of a whole log."""
    log = JobLog()
    log.feed(text, at)
    return log.findings()


def _holds(low_line: str, marks: list[str]) -> bool:
    """Whether a line holds a mark; NCCL's own notes, of which there are very many, only where they tell of ranks."""
    if " nccl info " in low_line:
        return "nranks" in low_line
    return any(mark in low_line for mark in marks)


def _is_mild(line: str) -> bool:
    low = line.lower()
    return any(word in low for word in signatures.MILD)


def _number(patterns: tuple, line: str) -> Optional[int]:
    for pattern in patterns:
        found = pattern.search(line)
        if found:
            return int(found.group(1))
    return None


def _device(row: Signature, line: str) -> str:
    pattern = {"network": _PORT, "cuda": _GPU}.get(row.family)
    found = pattern.search(line) if pattern else None
    return found.group(1).lower() if found else ""


def _finding(group: _Group) -> Finding:
    row = group.signature
    return Finding(
        row.code, row.family, row.verdict, row.action,
        device=group.device, pid=group.pid,
        rank=None if row.code in ("nccl_timeout", "nccl_stuck") else group.rank,
        count=group.count, first=group.first, last=group.last, lines=tuple(group.lines),
    )


def _made(row: Signature, lines: tuple, rank: Optional[int], cause: str) -> Finding:
    return Finding(row.code, row.family, row.verdict, row.action, rank=rank, cause=cause, lines=lines)
