# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a node's network answers at all: two probes, a quiet one and a thorough one.

The *quiet* one knocks once at a port where nobody listens: the node's kernel refuses, and no process on the node wakes,
nothing is logged there (slurmd logs an error for each connection that says nothing, sshd forks for each). A node that
does not answer it, be it for a firewall, gets the *thorough* one: slurmd's port, and SSH for its banner. Any answer of
either, a refusal too, is an answer.
"""

from __future__ import annotations

import asyncio
import errno
import select
import socket
import time
from typing import Iterable, Mapping, Optional, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.nodes.shell import (
    BANNER,
    REFUSED,
    SILENT,
    UNKNOWN,
    NodeShell,
)

QUIET_PORT = 9  # discard (RFC 863); whether somebody listens there or not, the answer is the same
_AT_ONCE = 400  # connections under way; a service has 1,024 descriptors by default
_TICK = 0.05

#: Words of `NodeShell` that mean that the network answered.
ANSWERS = (BANNER, REFUSED, SILENT)


def quiet(addresses: Iterable[str], seconds: float, port: int = QUIET_PORT) -> dict[str, bool]:
    """Knock once at each of these numeric addresses, many at once; blocking.

    Args:
        seconds: for each of them.

    Returns:
        by address whether it answered. False is no silence yet: ask thoroughly.
    """
    seen: dict[str, bool] = {}
    waiting = list(addresses)
    under_way: dict[int, tuple[str, socket.socket, float]] = {}
    poll = select.epoll()
    try:
        while waiting or under_way:
            while waiting and len(under_way) < _AT_ONCE:
                _knock(waiting.pop(), port, time.monotonic() + seconds, poll, under_way, seen)
            for number, _event in poll.poll(_TICK) if under_way else ():
                address, sock, _until = under_way.pop(number)
                seen[address] = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) in (0, errno.ECONNREFUSED)
                sock.close()
            now = time.monotonic()
            for number in [number for number, (_address, _sock, until) in under_way.items() if now > until]:
                address, sock, _until = under_way.pop(number)
                seen[address] = False
                sock.close()
    finally:
        for _address, sock, _until in under_way.values():
            sock.close()
        poll.close()
    return seen


def _knock(
    address: str,
    port: int,
    until: float,
    poll: select.epoll,
    under_way: dict[int, tuple[str, socket.socket, float]],
    seen: dict[str, bool],
) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    except OSError:
        seen[address] = False
        return
    try:
        error = sock.connect_ex((address, port))
    except (OSError, UnicodeError):  # no numeric address
        error = errno.EINVAL
    if error != errno.EINPROGRESS:
        seen[address] = error in (0, errno.ECONNREFUSED)
        sock.close()
        return
    under_way[sock.fileno()] = (address, sock, until)
    poll.register(sock.fileno(), select.EPOLLOUT | select.EPOLLONESHOT)


async def thorough(
    shell: NodeShell, addresses: Sequence[str], slurmd_port: int, seconds: float
) -> dict[str, Optional[bool]]:
    """Ask slurmd's port and the SSH port of each address (as `NodeShell` takes them), all at once.

    Returns:
        by address True for any answer, False for none, None where we could not ask one of the two.
    """
    banners, ports = await asyncio.gather(
        shell.banner_async(addresses, seconds), shell.knock_async(addresses, slurmd_port, seconds)
    )
    return {address: _together(banners, ports, address) for address in banners}


def _together(banners: Mapping[str, str], ports: Mapping[str, str], address: str) -> Optional[bool]:
    words = (banners[address], ports[address])
    if any(word in ANSWERS for word in words):
        return True
    return None if UNKNOWN in words else False
