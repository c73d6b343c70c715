# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Slurm host lists: `gpu[001-004,007],rack[1-2]n[1-8]` to names and back.

The syntax is that of `scontrol show hostnames`. Expanding here saves a process for every list, and refuses a list
that is too long before any name of it is made.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from typing import Union

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import BadInput

MAX_NAMES = 100_000
MAX_NAME = 255
NOTHING = ("", "(null)", "None assigned", "none assigned", "n/a", "N/A")
# Slurm reads "ALL" in the place of a node name as every node of the cluster.
EVERYTHING = "ALL"

_MAX_DIGITS = 18
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,%d}\Z" % (MAX_NAME - 1))
_RANGE = re.compile(r"(?P<first>[0-9]+)(?:-(?P<last>[0-9]+))?\Z")
_NUMBERED = re.compile(r"(?P<prefix>.*?)(?P<digits>[0-9]{1,%d})\Z" % _MAX_DIGITS)


class HostlistError(BadInput):
    """The text is not a host list, or names more nodes than the limit."""


def expand(text: str | None, limit: int = MAX_NAMES) -> list[str]:
    """Return the names of a host list in its order, with padding kept; an empty list where Slurm says "none".

    Raises:
        HostlistError: unbalanced brackets, a range that is none, a name that cannot be one, more than `limit` names.
    """
    if text is None or text.strip() in NOTHING:
        return []
    pieces = [_split_brackets(item) for item in _split_items(text.strip())]
    total = 0
    for parts in pieces:
        total += _size(parts, limit)
        if total > limit:
            raise HostlistError("host list %s names more than the limit of %d nodes" % (_short(text), limit))
    names = ["".join(combination) for parts in pieces for combination in itertools.product(*map(_values, parts))]
    for name in names:
        check_name(name)
    return names


def expand_all(items: Iterable[str], limit: int = MAX_NAMES) -> list[str]:
    """Expand several host lists into one list of names, each once, in the order of their first mention."""
    names: dict[str, None] = {}
    for item in items:
        names.update(dict.fromkeys(expand(item, limit)))
        if len(names) > limit:
            raise HostlistError("the host lists name more than %d nodes" % limit)
    return list(names)


def check_name(name: str) -> str:
    """Return `name` if it can be the name of one node; a leading dash, a space or Slurm's word for all is refused."""
    if not _NAME.match(name) or name.upper() == EVERYTHING:
        raise HostlistError("%s is not the name of a node" % _short(name))
    return name


def compress(names: Iterable[str]) -> str:
    """Fold names into a sorted host list, such that `expand` gives the same set back.

    Only a number at the end of a name is folded: not every version of Slurm reads text behind a bracket.
    """
    numbered: dict[str, list[str]] = {}
    plain: set[str] = set()
    for name in set(names):
        match = _NUMBERED.match(name)
        if match:
            numbered.setdefault(match.group("prefix"), []).append(match.group("digits"))
        else:
            plain.add(name)
    folded = [_fold(prefix, digits) for prefix, digits in sorted(numbered.items())]
    return ",".join(sorted(plain) + folded)


def _split_items(text: str) -> Iterator[str]:
    """Split at the commas that stand outside brackets."""
    depth = start = 0
    for position, character in enumerate(text):
        if character == "[":
            depth += 1
        elif character == "]":
            depth -= 1
        if depth not in (0, 1):
            raise HostlistError("unbalanced brackets in host list %s" % _short(text))
        if character == "," and depth == 0:
            yield _item(text[start:position], text)
            start = position + 1
    if depth:
        raise HostlistError("unbalanced brackets in host list %s" % _short(text))
    yield _item(text[start:], text)


def _item(item: str, text: str) -> str:
    if not item.strip():
        raise HostlistError("empty name in host list %s" % _short(text))
    return item.strip()


# A piece of an item: literal text, or the ranges of one bracket as (first, last, width).
_Piece = Union[str, "list[tuple[int, int, int]]"]


def _split_brackets(item: str) -> list[_Piece]:
    pieces: list[_Piece] = []
    for position, part in enumerate(re.split(r"[\[\]]", item)):
        if position % 2:
            pieces.append([_parse_range(text, item) for text in part.split(",")])
        elif part:
            pieces.append(part)
    return pieces


def _parse_range(text: str, item: str) -> tuple[int, int, int]:
    match = _RANGE.match(text.strip())
    if not match or max(map(len, match.groups(""))) > _MAX_DIGITS:
        raise HostlistError("%s is not a range, in host list %s" % (_short(text), _short(item)))
    first = match.group("first")
    last = match.group("last") or first
    if int(last) < int(first):
        raise HostlistError("range %s runs backwards, in host list %s" % (_short(text), _short(item)))
    return int(first), int(last), len(first)


def _size(parts: list[_Piece], limit: int) -> int:
    """How many names an item stands for; counted no further than beyond the limit, so that no name is made for it.

    Raises:
        HostlistError: its names are longer than any name can be.
    """
    size, length = 1, 0
    for part in parts:
        if isinstance(part, str):
            length += len(part)
        else:
            length += min(width for _first, _last, width in part)
            size = min(size * sum(last - first + 1 for first, last, _width in part), limit + 1)
    if length > MAX_NAME:
        raise HostlistError("a name of %d characters is not the name of a node" % length)
    return size


def _values(part: _Piece) -> Iterable[str]:
    if isinstance(part, str):
        return (part,)
    return ["%0*d" % (width, number) for first, last, width in part for number in range(first, last + 1)]


def _fold(prefix: str, digits: list[str]) -> str:
    ranges: list[list[str]] = []
    for text in sorted(digits, key=lambda each: (len(each), int(each))):
        if ranges and _follows(ranges[-1], text):
            ranges[-1][1] = text
        else:
            ranges.append([text, text])
    if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
        return prefix + ranges[0][0]
    return "%s[%s]" % (prefix, ",".join(first if first == last else "%s-%s" % (first, last) for first, last in ranges))


def _follows(current: list[str], text: str) -> bool:
    """Whether `text` is the next number of the range: n9 is followed by n10, n09 by n10, but n099 not by n100000."""
    first, last = current
    if int(text) != int(last) + 1:
        return False
    return len(text) == len(last) or not first.startswith("0")


def same_host(one: str, other: str) -> bool:
    """Whether two names are one host's, with its domain or without."""
    return one.partition(".")[0].lower() == other.partition(".")[0].lower()


def _short(text: str) -> str:
    """The text as a person may see it in an error: printable, quoted and bounded."""
    shown = text if len(text) <= 80 else text[:77] + "..."
    return repr(shown)
