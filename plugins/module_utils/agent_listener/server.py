# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's end of an exchange with a node agent, see `agent.protocol`: one TCP server, bounded everywhere.

No node can take what others need: it has a few connections, each with a deadline, and a bounded number of exchanges
and reports in a time; munge's commands run beside the event loop, a few at once.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Awaitable, Callable, Optional

from ansible_collections.mission_control.job_recovery.plugins.module_utils.agent import munge, protocol
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import (
    RecoveryError,
    Unreachable,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import AgentSettings

_CONNECTIONS = 512  # at once
_OF_ONE = 4  # of them from one address
_DEADLINE = 30.0  # seconds of an exchange
_MUNGE_DEADLINE = 5.0
_MUNGES = 4  # commands at once
_EXCHANGES = (20.0, 0.5)  # of one address: at once, and in a second
_PEERS = 20000  # addresses that are remembered
_TELL_EVERY = 300.0  # seconds between two complaints about one address
_AGENT_UID = 0


@dataclass(frozen=True)
class Arrival:
    """A message whose credential was opened; `peer` is the address that it came from."""

    proved: munge.Decoded
    message: protocol.Message
    peer: str


Take = Callable[[Arrival], Awaitable[protocol.Answer]]


class Bucket:
    """A number of things at once, and so many more each second."""

    def __init__(self, size: float, rate: float, now: float) -> None:
        self._size, self._rate, self._left, self._at = size, rate, size, now

    def take(self, number: float, now: float) -> bool:
        """Whether there is room for so many more; then they are taken."""
        self._left = min(self._size, self._left + (now - self._at) * self._rate)
        self._at = now
        if number > self._left:
            return False
        self._left -= number
        return True


class _Peer:
    def __init__(self, now: float) -> None:
        self.open = 0
        self.exchanges = Bucket(*_EXCHANGES, now)
        self.told_at = float("-inf")


class Server:
    """Listens where the settings say.

    Args:
        take: takes the message of an exchange and gives the answer once what it says is kept; raises RecoveryError.
        log: for what people should know of refused exchanges.
    """

    def __init__(self, take: Take, log: logging.Logger) -> None:
        self._take, self._log = take, log
        self._server: Optional[asyncio.AbstractServer] = None
        self._settings = AgentSettings()
        self._peers: OrderedDict[str, _Peer] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()
        self._munges = asyncio.Semaphore(_MUNGES)

    async def listen(self, settings: AgentSettings) -> None:
        """Listen as these settings say, which may be nowhere.

        Raises:
            Unreachable: the address or port cannot be had.
        """
        if settings == self._settings and (self._server is not None or not settings.port):
            return
        await self.close()
        self._settings = settings
        if not settings.port:
            return
        try:
            self._server = await asyncio.start_server(
                self._connected, settings.address or None, settings.port, limit=protocol.MAX_LINE
            )
        except OSError as exc:
            where = "%s:%d" % (settings.address or "*", settings.port)
            raise Unreachable("node agents: cannot listen on %s (%s)" % (where, exc.strerror)) from exc

    async def close(self) -> None:
        """Listen no more; exchanges that are going end."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        address = str((writer.get_extra_info("peername") or ["?"])[0])
        peer = self._peer(address)
        self._tasks.add(task)
        peer.open += 1
        try:
            if len(self._tasks) <= _CONNECTIONS and peer.open <= _OF_ONE:
                await asyncio.wait_for(self._answer(reader, writer, peer, address), _DEADLINE)
        except (OSError, asyncio.TimeoutError, asyncio.IncompleteReadError):
            pass  # it comes again, and whoever only holds connections open is not worth a word
        finally:
            peer.open -= 1
            self._tasks.discard(task)
            writer.close()

    def _peer(self, address: str) -> _Peer:
        peer = self._peers.get(address)
        if peer is None:
            peer = self._peers[address] = _Peer(time.monotonic())
        self._peers.move_to_end(address)
        while len(self._peers) > _PEERS:
            self._peers.popitem(last=False)
        return peer

    async def _answer(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, peer: _Peer, address: str
    ) -> None:
        try:
            line = await self._exchange(reader, writer, peer, address)
        except (RecoveryError, protocol.Malformed, munge.NotProved, ValueError) as exc:
            line = {"refused": str(exc)[:300]}
            if time.monotonic() - peer.told_at >= _TELL_EVERY:
                peer.told_at = time.monotonic()
                self._log.warning("the agent at %s is refused: %s", address, ascii(str(exc)))
        writer.write(protocol.pack_line(line))
        await writer.drain()

    async def _exchange(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, peer: _Peer, address: str
    ) -> dict[str, Any]:
        if not peer.exchanges.take(1, time.monotonic()):
            raise Unreachable("too many exchanges with %s" % address, "its agent tries again later")
        nonce = secrets.token_hex(16)
        writer.write(protocol.pack_line(protocol.greeting(nonce)))
        await writer.drain()
        sealed = protocol.credential(protocol.unpack(await reader.readline()))  # ValueError: the line is too long
        opened = await self._munge(munge.decode_argv(self._settings.munge_socket), sealed.encode("ascii"))
        proved = munge.decoded(*opened)
        message = protocol.message_of(protocol.unpack(proved.payload))
        if message.nonce != nonce:
            raise protocol.Malformed("the message was made for another exchange")
        answer = await self._take(Arrival(proved, message, address))
        payload = protocol.pack_line(answer._asdict())
        made = await self._munge(munge.encode_argv(_AGENT_UID, self._settings.munge_socket), payload)
        return {"credential": munge.encoded(*made)}

    async def _munge(self, argv: list[str], content: bytes) -> tuple[int, bytes, bytes]:
        """Run one of munge's commands; a time-out proves nothing."""
        async with self._munges:
            try:
                process = await asyncio.create_subprocess_exec(
                    *argv, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
                )
            except OSError as exc:
                raise munge.NotProved("%s cannot be run: %s" % (argv[0], exc.strerror)) from exc
            try:
                stdout, stderr = await asyncio.wait_for(process.communicate(content), _MUNGE_DEADLINE)
            except asyncio.TimeoutError:
                raise munge.NotProved("%s did not end in %g s" % (argv[0], _MUNGE_DEADLINE)) from None
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
            return process.returncode or 0, stdout, stderr
