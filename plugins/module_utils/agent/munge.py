# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""munge's credentials: who made one, on which host, and what it holds. Commands, and reading what they print.

A credential proves the user and the host's address to everybody who has the cluster's key. What `unmunge` prints about
a replayed or expired one is complete as well: only its exit code tells (munge 0.5.13 to 0.5.16).
"""

from __future__ import annotations

import re
import subprocess
from typing import NamedTuple

MAX_OUTPUT = 600000  # bytes
_KEYS = "STATUS,ENCODE_HOST,UID"
# `node2 (10.89.0.12)`, `??? (10.89.0.12)`, `root (0)`; the names come from DNS and passwd and are not looked at
_IN_BRACKETS = re.compile(r"^(ENCODE_HOST|UID):[^\n]*\(([0-9.]{1,15})\)$", re.MULTILINE)


class NotProved(Exception):
    """A credential that proves nothing, or munge itself does not work."""


class Decoded(NamedTuple):
    """What a credential proves: the host's address and the user's numeric id that made it, and what it holds."""

    address: str
    uid: int
    payload: bytes


def encode_argv(uid: int, socket: str = "") -> list:
    """The command that makes a credential of its stdin that only the user `uid` can read."""
    return ["munge", "--restrict-uid=%d" % uid, *_socket(socket)]


def decode_argv(socket: str = "") -> list:
    """The command that opens the credential on its stdin."""
    return ["unmunge", "--keys=" + _KEYS, *_socket(socket)]


def encoded(rc: int, stdout: bytes, stderr: bytes) -> str:
    """The credential that `munge` printed."""
    if rc != 0:
        raise NotProved("munge: %s" % _said(rc, stderr))
    return stdout.decode("ascii", "replace").strip()


def decoded(rc: int, stdout: bytes, stderr: bytes) -> Decoded:
    """What `unmunge` printed: lines of metadata, an empty one, the content."""
    if rc != 0:
        raise NotProved("unmunge: %s" % _said(rc, stderr or stdout))
    head, _gap, payload = stdout.partition(b"\n\n")
    found = dict(_IN_BRACKETS.findall(head.decode("utf-8", "replace")))
    if "ENCODE_HOST" not in found or not found.get("UID", "").isdigit():
        raise NotProved("unmunge: its answer is not understood")
    return Decoded(found["ENCODE_HOST"], int(found["UID"]), payload)


def run(argv: list, content: bytes, deadline: float) -> tuple:
    """Run one of the commands: exit code, stdout, stderr. For the agent; the controller's way does not block."""
    try:
        ran = subprocess.run(argv, input=content, capture_output=True, timeout=deadline, check=False)
    except OSError as exc:
        raise NotProved("%s cannot be run: %s" % (argv[0], exc.strerror)) from exc
    except subprocess.TimeoutExpired as exc:
        raise NotProved("%s did not end in %g s" % (argv[0], deadline)) from exc
    return ran.returncode, ran.stdout, ran.stderr


def _socket(path: str) -> list:
    return ["--socket=" + path] if path else []


def _said(rc: int, text: bytes) -> str:
    words = (text.decode("utf-8", "replace").strip().splitlines() or ["no reason given"])[0]
    return "rc %d: %s" % (rc, words[:200])
