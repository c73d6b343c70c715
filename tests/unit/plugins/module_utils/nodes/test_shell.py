# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Calls of the node helper by way of an ssh on PATH, and looks at real sockets."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest
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
from ansible_collections.mission_control.job_recovery.plugins.module_utils.nodes.shell import (
    BANNER,
    REFUSED,
    SILENT,
    UNKNOWN,
    NodeShell,
    parse_address,
    valid_boot_id,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import NodeSettings

PROBE = '{"job_recovery_node":1,"verb":"probe","ok":true,"boot_id":"x"}'
SSH = """\
#!%s
import json, os, subprocess, sys, time
with open(%r, "a") as log:
    log.write(json.dumps(sys.argv) + "\\n")
answers = json.load(open(%r))
host = sys.argv[sys.argv.index("--") + 1]
answer = answers[host]
if answer.get("child"):
    subprocess.Popen(["sleep", "60"])
time.sleep(answer.get("seconds", 0))
sys.stderr.write(answer.get("stderr", ""))
sys.stdout.write(answer.get("stdout", "") * answer.get("times", 1))
sys.exit(answer.get("rc", 0))
"""


class Ssh:
    """An ssh that answers as it is told, by host."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "bin").mkdir()
        program = folder / "bin/ssh"
        program.write_text(SSH % (sys.executable, str(folder / "log"), str(folder / "answers")), encoding="utf-8")
        program.chmod(0o755)
        self.shell = NodeShell(NodeSettings(key_file="/k/id", known_hosts_file="/k/hosts", connect_timeout=0.5))

    def answer(self, **by_host: dict[str, Any]) -> None:
        (self._folder / "answers").write_text(json.dumps(by_host), encoding="utf-8")

    @property
    def calls(self) -> list[list[str]]:
        lines = (self._folder / "log").read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]


@pytest.fixture(name="ssh")
def _ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ssh:
    ssh = Ssh(tmp_path)
    monkeypatch.setenv("PATH", "%s:%s" % (tmp_path / "bin", os.environ["PATH"]))
    return ssh


def test_the_command_line(ssh: Ssh) -> None:
    ssh.answer(node1={"stdout": PROBE})
    assert ssh.shell.call({"node1:2222": ["probe"]}, 10)["node1:2222"].data["boot_id"] == "x"
    (argv,) = ssh.calls
    assert argv[-4:] == ["root", "--", "node1", "probe"]
    assert argv[argv.index("-p") + 1] == "2222"
    assert argv[argv.index("-F") + 1] == "none"
    for option in ("BatchMode=yes", "StrictHostKeyChecking=yes", "UserKnownHostsFile=/k/hosts", "ControlMaster=no"):
        assert option in argv


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ({"rc": 255, "stderr": "Host key verification failed.\n"}, Conflict),
        ({"rc": 255, "stderr": "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key ...\n"}, Conflict),
        ({"rc": 255, "stderr": "root@node1: Permission denied (publickey).\n"}, Forbidden),
        ({"rc": 255, "stderr": "ssh: connect to host node1 port 22: Connection refused\n"}, Unreachable),
        ({"rc": 255, "stderr": "ssh: connect to host node1 port 22: No route to host\n"}, Unreachable),
        ({"rc": 255, "stderr": "Connection timed out during banner exchange\n"}, TimedOut),
        ({"rc": 255, "stderr": "kex_exchange_identification: \x1b[31mread\n"}, Unreachable),
        ({"rc": 255}, Unreachable),
        ({"rc": 127, "stderr": "bash: job-recovery-node: command not found\n"}, Absent),
        ({"rc": 0, "stdout": ""}, Unreadable),
        ({"rc": 0, "stdout": "Welcome\n"}, Unreadable),
        ({"stdout": '{"job_recovery_node":1,'}, Unreadable),
        ({"stdout": '["job_recovery_node"]'}, Unreadable),
        ({"stdout": "[" * 50000 + '"job_recovery_node"'}, Unreadable),
        ({"stdout": '{"job_recovery_node":1,"verb":"reboot","ok":true}'}, Unreadable),
        ({"stdout": '{"job_recovery_node":2,"verb":"probe","ok":true}'}, Unreadable),
        ({"stdout": '{"job_recovery_node":1,"verb":"probe","ok":"yes"}'}, Unreadable),
        ({"stdout": '{"job_recovery_node":1,"ok":false,"error":{"kind":"conflict","message":"m"}}', "rc": 1}, Conflict),
        ({"stdout": '{"job_recovery_node":1,"ok":false,"error":{"kind":"absent","message":"m"}}', "rc": 1}, Absent),
        ({"stdout": '{"job_recovery_node":1,"ok":false,"error":"x"}', "rc": 1}, RecoveryError),
        ({"stdout": "x" * 100000, "times": 20}, Unreadable),
    ],
)
def test_every_trouble_has_its_error(ssh: Ssh, answer: dict[str, Any], error: type) -> None:
    ssh.answer(node1=answer)
    told = ssh.shell.call({"node1": ["probe"]}, 20)["node1"]
    assert told.error.__class__ is error
    assert str(told.error).isprintable()
    assert told.data == {}


def test_noise_before_the_answer_is_borne(ssh: Ssh) -> None:
    ssh.answer(node1={"stdout": "Welcome to node1\n{not json}\n" + PROBE + "\n", "stderr": "** banner **\n"})
    assert ssh.shell.call({"node1": ["probe"]}, 10)["node1"].error is None


def test_an_answer_counts_although_ssh_ends_badly(ssh: Ssh) -> None:
    ssh.answer(node1={"stdout": PROBE + "\n", "rc": 255, "stderr": "Connection closed by remote host\n"})
    assert ssh.shell.call({"node1": ["probe"]}, 10)["node1"].data["boot_id"] == "x"


def test_many_at_once_and_each_for_itself(ssh: Ssh) -> None:
    ssh.answer(
        node1={"stdout": PROBE},
        node2={"seconds": 60, "child": True},
        node3={"rc": 255, "stderr": "Permission denied\n"},
    )
    started = time.monotonic()
    told = ssh.shell.call({"node1": ["probe"], "node2": ["probe"], "node3": ["probe"], "-oX": ["probe"]}, 2)
    assert time.monotonic() - started < 5
    assert {address: type(answer.error) for address, answer in told.items()} == {
        "node1": type(None),
        "node2": TimedOut,
        "node3": Forbidden,
        "-oX": BadInput,
    }


@pytest.mark.parametrize("word", ["a b", "$(id)", "x;y", "", "'x'"])
def test_no_odd_word_leaves_us(ssh: Ssh, word: str) -> None:
    assert isinstance(ssh.shell.call({"node1": ["probe", word]}, 5)["node1"].error, BadInput)


def test_no_ssh_at_all(ssh: Ssh, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert isinstance(ssh.shell.call({"node1": ["probe"]}, 5)["node1"].error, Absent)


@pytest.mark.parametrize(
    ("address", "parsed"),
    [
        ("node7", ("node7", 22)),
        ("10.0.0.7:2222", ("10.0.0.7", 2222)),
        ("[fd00::7]:2222", ("fd00::7", 2222)),
        ("[fd00::7]", ("fd00::7", 22)),
        ("fd00::7", ("fd00::7", 22)),
        ("a1.example.com", ("a1.example.com", 22)),
    ],
)
def test_addresses(address: str, parsed: tuple[str, int]) -> None:
    assert parse_address(address, 22) == parsed


@pytest.mark.parametrize("address", ["", "-oProxyCommand=x", "node7:", "node7:0", "node7:99999", "a b", "[::1", "x\n"])
def test_bad_addresses(address: str) -> None:
    with pytest.raises(BadInput):
        parse_address(address, 22)


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        ("494462d2-fd04-4fee-a0e1-cabc4c1ecf35", True),
        ("494462d2-fd04-4fee-a0e1-cabc4c1ecf35\n", False),
        ("Welcome\n494462d2-fd04-4fee-a0e1-cabc4c1ecf35", False),
        ("494462D2-FD04-4FEE-A0E1-CABC4C1ECF35", False),
        ("494462d2-fd04-4fee-a0e1-cabc4c1ecf35\n494462d2-fd04-4fee-a0e1-cabc4c1ecf36", False),
        ("494462d2-fd04-4fee-a0e1-cabc4c1ecf35 ", False),
        ("\ufeff494462d2-fd04-4fee-a0e1-cabc4c1ecf35", False),
        ("494462d2fd044feea0e1cabc4c1ecf35", False),
        ("{494462d2-fd04-4fee-a0e1-cabc4c1ecf35}", False),
        ("494462d2-fd04-4fee-a0e1-cabc4c1ecf3g", False),
        ("\u0664\u0669\u0664462d2-fd04-4fee-a0e1-cabc4c1ecf35", False),
        ("x" * 100_000, False),
        (7, False),
        ([], False),
        ("", False),
        (None, False),
    ],
)
def test_boot_ids(text: object, valid: bool) -> None:
    assert valid_boot_id(text) is valid


@pytest.fixture(name="listen")
def _listen() -> Iterator[Callable[[Callable[[socket.socket], None]], str]]:
    servers: list[socket.socket] = []

    def listen(serve: Callable[[socket.socket], None]) -> str:
        server = socket.create_server(("127.0.0.1", 0))
        servers.append(server)

        def accept() -> None:
            try:
                connection, _address = server.accept()
                with connection:
                    serve(connection)
            except OSError:
                pass

        threading.Thread(target=accept, daemon=True).start()
        return "127.0.0.1:%d" % server.getsockname()[1]

    yield listen
    for server in servers:
        server.close()


def test_banner(ssh: Ssh, listen: Callable[[Callable[[socket.socket], None]], str]) -> None:
    def say(*parts: bytes) -> Callable[[socket.socket], None]:
        def serve(connection: socket.socket) -> None:
            for part in parts:
                connection.sendall(part)
                time.sleep(0.05)
            if parts:
                time.sleep(1)

        return serve

    expected = {
        listen(say(b"SSH-2.0-OpenSSH_9.2p1\r\n")): BANNER,
        listen(say(b"welcome\r\n", b"SSH-2", b".0-x\r\n")): BANNER,
        listen(lambda connection: time.sleep(2)): SILENT,
        listen(say(b"x" * 100000)): SILENT,
        listen(say()): REFUSED,
        "127.0.0.1:1": REFUSED,
        "no-such-host.invalid": UNKNOWN,
        "bad address": UNKNOWN,
    }
    started = time.monotonic()
    assert ssh.shell.banner(list(expected)) == expected
    assert time.monotonic() - started < 3
    assert ssh.shell.banner([]) == {}


def test_a_frozen_node_is_silent(ssh: Ssh) -> None:
    # TCP connects by the kernel alone, as on a frozen node: nobody ever accepts
    with socket.create_server(("127.0.0.1", 0)) as frozen:
        address = "127.0.0.1:%d" % frozen.getsockname()[1]
        assert ssh.shell.banner([address]) == {address: SILENT}
