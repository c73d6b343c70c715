# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bytes of any encoding become text, and the module says what it tells."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import (
    Absent,
    BadInput,
    RecoveryError,
    Unreadable,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.logs import diagnosis, reading

LINE = "Segmentation fault at step 9 of the run\n"


@pytest.mark.parametrize(
    ("content", "size", "text"),
    [
        (b"one\ntwo\n", 8, "one\ntwo\n"),
        (b"ne\ntwo\n", 100, "two\n"),
        (b"no line end at all", 100, "no line end at all"),
        ("\u00e4\u20ac\n".encode(), 6, "\u00e4\u20ac\n"),
        (b"caf\xe9 ok\n", 8, "caf\ufffd ok\n"),
        (b"\xef\xbb\xbfx\n", 5, "x\n"),
        (LINE.encode("utf-16"), 0, LINE),
        (LINE.encode("utf-16-le"), 0, LINE),
        (LINE.encode("utf-16-be"), 0, LINE),
        (b"\0\0ab\0c\n", 7, "abc\n"),
        (b"", 0, ""),
    ],
)
def test_text(content: bytes, size: int, text: str) -> None:
    assert reading.text_of(content, size) == text


def _run(**params: Any) -> dict[str, Any]:
    limits = {"max_bytes": reading.MAX_BYTES, "timeout": 5.0}
    usual = {"loki": None, "text": None, "path": None, "user": None, "source": "any", **limits}
    return diagnosis.run({**usual, **params}, False)


def test_of_a_text() -> None:
    told = _run(text="a\nRuntimeError: CUDA error: uncorrectable ECC error encountered\n")
    assert (told["changed"], told["verdict"], told["action"], told["why"]) == (False, "hardware", "report", "cuda_ecc")
    assert told["findings"][0]["lines"] == [
        {"number": 2, "text": "RuntimeError: CUDA error: uncorrectable ECC error encountered"}
    ]


XID79 = "NVRM: Xid (PCI:0000:05:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
XID31 = "NVRM: Xid (PCI:0000:00:07): 31, pid=2512125, name=python3.10, Ch 00000008, intr 00000000. MMU Fault: ENGINE"


@pytest.mark.parametrize(
    ("text", "source", "verdict", "why", "codes"),
    [
        (XID79, "any", "hardware", "kernel_log", ["xid79"]),
        (XID79, "kernel", "hardware", "kernel_log", ["xid79"]),
        (XID79, "job", "hardware", "gpu_lost", ["gpu_lost"]),
        (XID31, "any", "application", "xid31", ["xid31"]),
        (XID79 + "\nCUDA error: an illegal memory access was encountered", "any", "hardware", "kernel_log",
         ["xid79", "cuda_illegal_address"]),
        (XID31 + "\nCUDA error: an illegal memory access was encountered", "any", "application",
         "cuda_illegal_address", ["cuda_illegal_address", "xid31"]),
        ("CUDA error: an illegal memory access was encountered", "kernel", "unknown", "nothing_found", []),
    ],
)
def test_lines_of_the_kernel(text: str, source: str, verdict: str, why: str, codes: list[str]) -> None:
    told = _run(text=text, source=source)
    assert (told["verdict"], told["why"], [one["code"] for one in told["findings"]]) == (verdict, why, codes)
    if source == "job":
        assert told["action"] == "report"


def test_of_the_end_of_a_file(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("Segmentation fault\n" + "x\n" * 1000 + "CUDA out of memory\n", encoding="ascii")
    assert [one["code"] for one in _run(path=str(log))["findings"]] == ["segfault", "cuda_oom"]
    told = _run(path=str(log), max_bytes=100, user=str(os.geteuid()))
    assert [one["code"] for one in told["findings"]] == ["cuda_oom"]
    assert told["size"] == log.stat().st_size


@pytest.mark.parametrize(
    ("params", "error"),
    [
        ({"path": "/no/such/file"}, Absent),
        ({"path": "/etc"}, Unreadable),
        ({"path": "log"}, BadInput),
        ({"text": "x", "max_bytes": 0}, BadInput),
        ({"text": "x", "max_bytes": reading.MAX_BYTES + 1}, BadInput),
        ({"text": "x", "timeout": 0.0}, BadInput),
        ({"path": "/etc/hostname", "user": "no-such-user"}, BadInput),
    ],
)
def test_wrong_use(params: dict[str, Any], error: type[RecoveryError]) -> None:
    with pytest.raises(error):
        _run(**params)
