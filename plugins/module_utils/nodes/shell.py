# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's way to the nodes: a cheap look at the SSH port, and calls of the node helper over SSH.

An address is a host name or an IP address, with a port where it is not the usual one: `node7`, `10.0.0.7:2222`,
`[fd00::7]:2222`, `fd00::7`. Trouble with one node is that node's answer; nothing here raises for it.
"""

from __future__ import annotations

import asyncio
import errno
import re
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Mapping, Optional, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils import json_text
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import (
    Absent,
    BadInput,
    Conflict,
    Forbidden,
    RecoveryError,
    TimedOut,
    Unreachable,
    Unreadable,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.nodes.process import Finished, run_bounded
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import NodeSettings

# answers of `banner`
BANNER = "banner"  # sshd greets: the node is alive
REFUSED = "refused"  # the kernel is alive, no sshd listens
SILENT = "silent"  # TCP connects and no greeting comes: a frozen node, or one that boots or is overloaded
NO_ROUTE = "no route"  # nobody answers at this address
UNKNOWN = "unknown"  # the controller could not even ask: the name is not resolved, it has no network or no file left

_MARK = "job_recovery_node"
# What says nothing of the node: this machine has no route, no address, no descriptor or no memory left, or its own
# firewall lets nothing out.
_OUR_OWN_TROUBLE = frozenset(
    (
        errno.ENETUNREACH,
        errno.ENETDOWN,
        errno.EADDRNOTAVAIL,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOMEM,
        errno.ENOBUFS,
        errno.EPERM,
        errno.EACCES,
    )
)
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._:%-]{0,252}[A-Za-z0-9])?\Z")
_WORD = re.compile(r"[A-Za-z0-9._+-]+\Z")
_BOOT_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")
_MAX_ANSWER = 524288  # bytes; the helper's own bound is half of it
_WORKERS = 64
# The kernel sends a SYN at once, after 1 s and after 3 s: who has not answered the second one after two seconds is not
# asked again before the third.
_TWO_SYNS, _THIRD_SYN = 2.0, 3.0
_REFUSALS = {"bad_input": BadInput, "absent": Absent, "timed_out": TimedOut, "conflict": Conflict}
_SSH_TROUBLE: tuple[tuple[str, type[RecoveryError], str], ...] = (
    (
        "Host key verification failed",
        Conflict,
        "compare the node's host key, then run site.yml to record the right one",
    ),
    ("HOST IDENTIFICATION HAS CHANGED", Conflict, "compare the node's host key, then run site.yml to record it"),
    ("Permission denied", Forbidden, "run site.yml, which allows the recovery's key on every node"),
    ("Connection refused", Unreachable, ""),
    ("No route to host", Unreachable, ""),
    ("Network is unreachable", Unreachable, ""),
    ("Could not resolve hostname", Unreachable, "correct the node's SSH address"),
    ("timed out", TimedOut, ""),
)


@dataclass(frozen=True)
class NodeAnswer:
    """What one node's helper answered.

    Attributes:
        data: the fields of its answer; empty when there is an error.
        error: `Conflict` (another host key), `Forbidden`, `Unreachable` (refused, no route), `TimedOut`, `Absent` (no
            helper, or the helper says that the thing is not there), `Unreadable`, or another `RecoveryError` when the
            helper tried and failed. After any but `Absent`, `Forbidden` and `BadInput` a write may have happened.
    """

    data: Mapping[str, Any] = field(default_factory=dict)
    error: Optional[RecoveryError] = None


def parse_address(address: str, default_port: int) -> tuple[str, int]:
    """Host and port of an address.

    Raises:
        BadInput: it is none.
    """
    host, port = address, str(default_port)
    if address.startswith("["):
        host, _bracket, rest = address[1:].partition("]")
        port = rest[1:] if rest.startswith(":") else port if not rest else ""
    elif address.count(":") == 1:
        host, _colon, port = address.partition(":")
    if not _HOST.match(host) or not port.isdigit() or not 0 < int(port) < 65536:
        raise BadInput("%r is no address of a node" % address, "correct the node's SSH address")
    return host, int(port)


def job_words(number: int, uid: Optional[int]) -> list[str]:
    """A job as the helper's `orphans` and `end-orphans` take it: its id, and whose processes count if that is known."""
    return [str(number), *([] if uid is None else ["--owner", "%d.%d" % (number, uid)])]


def valid_boot_id(text: object) -> bool:
    """Whether this is a boot ID, and nothing else."""
    return isinstance(text, str) and _BOOT_ID.match(text) is not None


class NodeShell:
    """SSH to the node helper.

    Args:
        settings: where the key, the known hosts and the time-outs are.
    """

    def __init__(self, settings: NodeSettings) -> None:
        self._settings = settings

    def banner(self, addresses: Sequence[str], deadline: Optional[float] = None) -> dict[str, str]:
        """Look at the SSH port of each address, all at once, for at most `deadline` seconds (default: connect_timeout).

        Returns:
            by address `BANNER`, `REFUSED`, `SILENT`, `NO_ROUTE` or `UNKNOWN`.
        """
        return asyncio.run(self.banner_async(addresses, deadline))

    async def banner_async(self, addresses: Sequence[str], deadline: Optional[float] = None) -> dict[str, str]:
        """`banner` for callers that have an event loop of their own."""
        seconds = deadline or self._settings.connect_timeout
        unique = list(dict.fromkeys(addresses))
        seen = await asyncio.gather(*(_banner(address, self._settings.ssh_port, seconds) for address in unique))
        return dict(zip(unique, seen))

    async def knock_async(self, addresses: Sequence[str], port: int, deadline: float) -> dict[str, str]:
        """Look whether another port of each address takes a connection: `SILENT` if so, else as `banner`."""
        unique = list(dict.fromkeys(addresses))
        seen = await asyncio.gather(*(_knock(address, port, deadline) for address in unique))
        return dict(zip(unique, seen))

    def call(self, requests: Mapping[str, Sequence[str]], deadline: float) -> dict[str, NodeAnswer]:
        """Ask the helper of each address (its words: verb, operands, options), all at once.

        Args:
            requests: by address the helper's command line as a list of plain words.
            deadline: seconds for the whole call; an ssh that is not done by then is killed with its group.

        Returns:
            by address its answer or its error.
        """
        until = time.monotonic() + deadline
        if not requests:
            return {}
        if len(requests) == 1:
            return {address: self._call_one(address, words, until) for address, words in requests.items()}
        with ThreadPoolExecutor(min(_WORKERS, len(requests))) as pool:
            answers = pool.map(lambda item: self._call_one(item[0], item[1], until), requests.items())
            return dict(zip(requests, answers))

    def _call_one(self, address: str, words: Sequence[str], until: float) -> NodeAnswer:
        try:
            argv = self._argv(address, words, max(1, int(until - time.monotonic())))
            return NodeAnswer(data=read_answer(address, run_bounded(argv, until, _MAX_ANSWER), words[0]))
        except RecoveryError as exc:
            return NodeAnswer(error=exc)

    def _argv(self, address: str, words: Sequence[str], seconds_left: int) -> list[str]:
        host, port = parse_address(address, self._settings.ssh_port)
        for word in words:
            if not _WORD.match(word):
                raise BadInput("%r is no word of the node helper" % word)
        options = {
            "BatchMode": "yes",
            "StrictHostKeyChecking": "yes",
            "UserKnownHostsFile": self._settings.known_hosts_file,
            "GlobalKnownHostsFile": "/dev/null",
            "IdentitiesOnly": "yes",
            "IdentityAgent": "none",
            "PreferredAuthentications": "publickey",
            # what is exchanged is no secret, and the post-quantum method takes 0.1 s of a core on either side
            "KexAlgorithms": "^curve25519-sha256,ecdh-sha2-nistp256",
            "ConnectTimeout": str(min(max(1, round(self._settings.connect_timeout)), seconds_left)),
            "ServerAliveInterval": "5",
            "ServerAliveCountMax": "2",
            "ControlMaster": "no",
            "ControlPath": "none",
            "ClearAllForwardings": "yes",
            "LogLevel": "ERROR",
        }
        argv = ["ssh", "-F", "none", "-T", "-n", "-i", self._settings.key_file, "-p", str(port)]
        for name, value in options.items():
            argv += ["-o", "%s=%s" % (name, value)]
        return [*argv, "-l", self._settings.ssh_user, "--", host, *words]


def read_answer(address: str, finished: Finished, verb: str) -> dict[str, Any]:
    """The helper's answer out of what ssh left.

    Raises:
        RecoveryError: see `NodeAnswer.error`.
    """
    for line in reversed(finished.stdout.splitlines()):
        if _MARK in line:
            return _helper_answer(address, line, verb)
    if finished.timed_out:
        raise TimedOut("node %s: no answer over SSH in time" % address)
    if finished.rc == 255:
        raise _ssh_error(address, finished.stderr)
    if finished.rc in (126, 127):
        raise Absent("node %s has no node helper" % address, "run site.yml, which installs it")
    raise Unreadable("node %s: the helper's answer is not understood (exit code %d)" % (address, finished.rc))


def _helper_answer(address: str, line: str, verb: str) -> dict[str, Any]:
    try:
        answer = json_text.loads(line)
    except ValueError:
        answer = None
    if not isinstance(answer, dict) or not isinstance(answer.get("ok"), bool):
        raise Unreadable("node %s: the helper's answer is no JSON object" % address)
    if answer["ok"]:
        if answer.get(_MARK) != 1 or answer.get("verb") != verb:
            raise Unreadable("node %s: the helper answers another question" % address, "run site.yml to renew it")
        return answer
    error = answer.get("error")
    error = error if isinstance(error, dict) else {}
    kind = _REFUSALS.get(str(error.get("kind")), Unreadable if error.get("kind") == "unreadable" else RecoveryError)
    raise kind("node %s: %s" % (address, printable(str(error.get("message", "the helper failed")))))


def _ssh_error(address: str, stderr: str) -> RecoveryError:
    for text, kind, next_step in _SSH_TROUBLE:
        if text in stderr:
            return kind("node %s: SSH says %s" % (address, text[0].lower() + text[1:]), next_step)
    last = stderr.strip().splitlines()[-1:]
    return Unreachable("node %s: SSH failed (%s)" % (address, printable(last[0]) if last else "no message"))


def printable(text: str, limit: int = 300) -> str:
    """Text from a node without control characters, at most `limit` characters."""
    return "".join(char if char.isprintable() else " " for char in text[:limit])


async def _banner(address: str, default_port: int, seconds: float) -> str:
    until = time.monotonic() + seconds
    try:
        host, port = parse_address(address, default_port)
    except BadInput:
        return UNKNOWN
    word, streams = await _connect(host, port, seconds if seconds > _THIRD_SYN else min(seconds, _TWO_SYNS))
    if streams is None:
        return word
    reader, writer = streams
    try:
        return await _greeting(reader, max(0.05, until - time.monotonic()))
    finally:
        writer.close()


async def _knock(address: str, port: int, seconds: float) -> str:
    try:
        host, _ssh_port = parse_address(address, port)
    except BadInput:
        return UNKNOWN
    word, streams = await _connect(host, port, seconds)
    if streams is not None:
        streams[1].close()
    return word


async def _connect(
    host: str, port: int, seconds: float
) -> tuple[str, Optional[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]:
    """The streams of a connection and `SILENT`, as nobody has said anything yet; else why there is none."""
    until = time.monotonic() + seconds
    try:
        numeric = await resolve(host, port, seconds)
    except (OSError, asyncio.TimeoutError):
        return UNKNOWN, None
    try:
        left = max(0.05, until - time.monotonic())
        return SILENT, await asyncio.wait_for(asyncio.open_connection(numeric, port), left)
    except ConnectionRefusedError:
        return REFUSED, None
    except asyncio.TimeoutError:
        return NO_ROUTE, None
    except OSError as exc:
        return UNKNOWN if exc.errno in _OUR_OWN_TROUBLE else NO_ROUTE, None


async def resolve(host: str, port: int, seconds: float) -> str:
    """The address of a host. In a thread that nobody waits for longer: a resolver may hang for minutes.

    Raises:
        OSError: it cannot be resolved.
        asyncio.TimeoutError: not in time.
    """
    if is_numeric(host):
        return host
    loop = asyncio.get_running_loop()
    found: asyncio.Future[str] = loop.create_future()

    def tell(answer: str, error: Optional[OSError]) -> None:
        if found.done():
            return
        if error is None:
            found.set_result(answer)
        else:
            found.set_exception(error)

    def look() -> None:
        answer, error = "", None
        try:
            answer = str(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][4][0])
        except OSError as exc:
            error = exc
        except UnicodeError:
            error = OSError("no host name")
        try:
            loop.call_soon_threadsafe(tell, answer, error)
        except RuntimeError:  # the loop is closed: nobody waits any more
            pass

    threading.Thread(target=look, daemon=True).start()
    return await asyncio.wait_for(found, seconds)


def is_numeric(host: str) -> bool:
    """Whether a host is an address already, which nobody need look up."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
            return True
        except (OSError, UnicodeError):
            continue
    return False


async def _greeting(reader: asyncio.StreamReader, seconds: float) -> str:
    """RFC 4253, 4.2: the server may send other lines before the one that begins with `SSH-`."""
    until = time.monotonic() + seconds
    try:
        for _line in range(50):
            line = await asyncio.wait_for(reader.readline(), max(0.01, until - time.monotonic()))
            if line.startswith(b"SSH-"):
                return BANNER
            if not line:
                return REFUSED  # closed without a greeting: sshd is there and will not have us (starting, MaxStartups)
    except (OSError, ValueError, asyncio.TimeoutError):
        pass
    return SILENT
