# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Both probes against real sockets: each address of the loopback network is a node."""

from __future__ import annotations

import asyncio
import socket
import time
from typing import Iterator, Optional

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.nodes import probe
from ansible_collections.mission_control.job_recovery.plugins.module_utils.nodes.shell import NodeShell
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import NodeSettings

from ..ports import NETWORK, full_listener

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

REFUSING, LISTENING, SILENT = NETWORK + ".101", NETWORK + ".102", NETWORK + ".103"
QUIET, SLURMD, SSH = 22119, 22118, 22122


@pytest.fixture(scope="module", autouse=True)
def _ports() -> Iterator[None]:
    listener = socket.create_server((LISTENING, QUIET))
    greeter = socket.create_server((LISTENING, SSH))
    made = [listener, greeter]
    for port in (QUIET, SLURMD, SSH):
        made += full_listener(SILENT, port)
    made += full_listener(LISTENING, SLURMD)
    yield
    for sock in made:
        sock.close()


def test_the_quiet_probe_takes_every_answer() -> None:
    begun = time.monotonic()
    seen = probe.quiet([REFUSING, LISTENING, SILENT, "no address", "::1"], 0.4, QUIET)
    assert seen == {REFUSING: True, LISTENING: True, SILENT: False, "no address": False, "::1": True}
    assert time.monotonic() - begun < 2.0


def test_many_nodes_cost_few_descriptors_and_little_time() -> None:
    """More than may be under way at once, so that a switch that is gone holds nobody up."""
    silent = [SILENT] + ["127.0.79.%d" % number for number in range(1, 255)] * 4
    begun = time.monotonic()
    seen = probe.quiet(silent, 0.4, QUIET)
    assert len(seen) == 255
    assert sum(seen.values()) == 254
    assert time.monotonic() - begun < 5.0


@pytest.mark.parametrize(
    ("address", "answers"),
    [
        (REFUSING, True),
        (LISTENING, True),  # SSH takes the connection and says nothing: a frozen node
        (SILENT, False),
        ("%s.104:%d" % (NETWORK, SSH), True),
        ("no.such.host.invalid", None),
        ("no address", None),
    ],
    ids=["refusing", "listening", "silent", "other port", "no such host", "no address"],
)
def test_the_thorough_probe_asks_two_ports(address: str, answers: Optional[bool]) -> None:
    shell = NodeShell(NodeSettings(ssh_port=SSH))
    assert asyncio.run(probe.thorough(shell, [address], SLURMD, 0.6)) == {address: answers}
