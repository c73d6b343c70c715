# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""TCP ports that do not answer, as those of a machine without power."""

from __future__ import annotations

import os
import socket

#: Loopback addresses that no other run of the tests on this machine uses, by their first three numbers.
NETWORK = "127.%d.%d" % (64 + os.getpid() // 256 % 128, os.getpid() % 256)


def full_listener(address: str, port: int) -> list[socket.socket]:
    """A listener whose queue is full, and what fills it: the kernel drops what comes."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((address, port))
    listener.listen(0)
    made = [listener]
    while True:
        client = socket.socket()
        client.settimeout(0.2)
        made.append(client)
        try:
            client.connect((address, port))
        except OSError:  # nobody answers any more
            return made
