# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bringing reports to the controller: one exchange at a time, see `protocol`. Nothing is forgotten but what it took."""

from __future__ import annotations

import random
import secrets
import socket
import time
from collections.abc import Callable

from . import munge, protocol
from .config import Config
from .spool import Spool

_DEADLINE = 20.0  # seconds of an exchange
_MUNGE_DEADLINE = 5.0
_ALIVE_EVERY = 300.0  # seconds after which one that has nothing to report says so
_FIRST_PAUSE, _LAST_PAUSE = 1.0, 60.0
_SHORTEST_PAUSE = 2.0  # which leaves room in what the controller takes from one address


class NotDelivered(Exception):
    """The controller did not take anything, or nobody knows whether it did."""


class Delivery:
    """Sends what the spool holds.

    Args:
        log: takes one line of text for a person.
    """

    def __init__(self, config: Config, boot_id: str, spool: Spool, log: Callable[[str], None]) -> None:
        self._config, self._boot_id, self._spool, self._log = config, boot_id, spool, log
        self._trouble = ""
        self._next = 0.0  # when the controller is to hear of this boot again

    def run(self, ended: Callable[[], bool]) -> None:
        """Deliver until the end; a controller that is away is tried again, less and less often."""
        pause = _FIRST_PAUSE
        while not ended():
            self._spool.wait(1.0)
            reports = self._spool.oldest(protocol.MAX_REPORTS)
            if not reports and time.monotonic() < self._next:
                continue
            if self.deliver(reports):
                pause = _FIRST_PAUSE
                continue
            # not all nodes of a cluster at the same moment, after what all of them saw
            self._pause(pause * random.uniform(0.5, 1.5), ended)  # noqa: S311 (no secret)
            pause = min(pause * 2, _LAST_PAUSE)

    def _pause(self, seconds: float, ended: Callable[[], bool]) -> None:
        """So long at most; a new report does not wait for the end of it."""
        began, known = time.monotonic(), self._spool.added
        while not ended() and time.monotonic() - began < seconds:
            if self._spool.added != known and time.monotonic() - began >= _SHORTEST_PAUSE:
                return
            time.sleep(0.1)

    def deliver(self, reports: list) -> bool:
        """Offer reports to one controller after the other; whether one answered and had room for them.

        There may be none: then it only hears that the agent is there, and which boot the node is in.
        """
        troubles = []
        for host in self._config.controllers:
            try:
                answer = self._exchange(host, reports)
            except (NotDelivered, protocol.Malformed, munge.NotProved, OSError) as exc:
                troubles.append("%s: %s" % (host, exc))
                continue
            return self._settle(answer, len(reports))
        self._tell("; ".join(troubles))
        return False

    def _settle(self, answer: protocol.Answer, offered: int) -> bool:
        self._tell("")
        # not all nodes of a cluster at the same moment
        self._next = time.monotonic() + _ALIVE_EVERY * random.uniform(0.8, 1.2)  # noqa: S311 (no secret)
        for name, why in answer.refused.items():
            self._log("the controller never takes report %s: %s" % (ascii(name), ascii(why)))
        self._spool.remove([*answer.taken, *answer.refused])
        return not offered or bool(answer.taken or answer.refused)

    def _tell(self, trouble: str) -> None:
        if trouble and trouble != self._trouble:
            self._log("reports are kept until the controller takes them (%s)" % ascii(trouble))
        elif self._trouble and not trouble:
            self._log("the controller takes reports again")
        self._trouble = trouble

    def _exchange(self, host: str, reports: list) -> protocol.Answer:
        until = time.monotonic() + _DEADLINE
        with socket.create_connection((host, self._config.port), timeout=5.0) as connection:
            lines = _Lines(connection, until)
            nonce, mine = protocol.greeted(protocol.unpack(lines.read())), secrets.token_hex(16)
            message = protocol.Message(nonce, mine, self._config.node, self._boot_id, reports)
            payload = protocol.pack_line(message._asdict())
            argv = munge.encode_argv(self._config.controller_uid, self._config.munge_socket)
            credential = munge.encoded(*munge.run(argv, payload, _MUNGE_DEADLINE))
            lines.write(protocol.pack_line({"credential": credential}))
            sealed = protocol.credential(protocol.unpack(lines.read()))
        argv = munge.decode_argv(self._config.munge_socket)
        told = munge.decoded(*munge.run(argv, sealed.encode("ascii"), _MUNGE_DEADLINE))
        answer = protocol.answer_of(protocol.unpack(told.payload))
        if told.uid != self._config.controller_uid or answer.answer != mine:
            raise NotDelivered("the answer is not the controller's")
        return answer


class _Lines:
    """Lines over a socket, bounded, with one deadline for all of them."""

    def __init__(self, connection: socket.socket, until: float) -> None:
        self._connection, self._until = connection, until
        self._read = b""

    def read(self) -> bytes:
        while b"\n" not in self._read:
            self._connection.settimeout(self._left())
            data = self._connection.recv(65536)
            if not data:
                raise NotDelivered("the connection was closed")
            self._read += data
            if len(self._read) > protocol.MAX_LINE:
                raise NotDelivered("the answer is too long")
        line, _end, self._read = self._read.partition(b"\n")
        return line

    def write(self, data: bytes) -> None:
        self._connection.settimeout(self._left())
        self._connection.sendall(data)

    def _left(self) -> float:
        left = self._until - time.monotonic()
        if left <= 0:
            raise NotDelivered("no answer in time")
        return left
