# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The event source `node_agent`: loaded by path, against a real MariaDB, with real munged daemons of three hosts."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import importlib.util
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, AsyncIterator, Callable, Iterator, NamedTuple, Optional

import pytest
import yaml
from ansible_collections.mission_control.job_recovery.plugins.module_utils.agent import munge, protocol
from ansible_collections.mission_control.job_recovery.plugins.module_utils.agent.config import Config
from ansible_collections.mission_control.job_recovery.plugins.module_utils.agent.delivery import Delivery
from ansible_collections.mission_control.job_recovery.plugins.module_utils.agent.records import Position
from ansible_collections.mission_control.job_recovery.plugins.module_utils.agent.spool import Spool
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.fault import Target
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.rows import Request
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.store import Store
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import LedgerSettings
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import Machine

from ..plugins.module_utils.ports import NETWORK
from ..plugins.module_utils.recovery.world import fault_of
from ..private_munge import Munge

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")

SOURCE = Path(__file__).parents[3] / "extensions/eda/plugins/event_source/node_agent.py"
BOOT = "11111111-2222-3333-4444-555555555555"
NEXT_BOOT = "99999999-2222-3333-4444-555555555555"
ROOT, NOBODY = 0, 65534
HEAD, NODE1, NODE2 = (NETWORK + ".1", NETWORK + ".11", NETWORK + ".12")
XID79 = "NVRM: Xid (PCI:0000:05:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


def report(**changes: Any) -> dict[str, Any]:
    good = {
        "id": secrets.token_hex(16),
        "code": "xid79",
        "family": "xid",
        "verdict": "hardware",
        "action": "reboot",
        "severity": "fatal",
        "device": "0000:05:00",
        "cause": "",
        "count": 1,
        "first": None,
        "last": None,
        "boot_id": BOOT,
        "lines": [XID79],
    }
    return {**good, **changes}


class Site(NamedTuple):
    """A listening source, and the hosts' munge sockets by address."""

    queue: asyncio.Queue
    store: Store
    folder: Path
    port: int
    sockets: dict[str, str]
    settings: str

    def spool(self, *reports: dict[str, Any]) -> Spool:
        folder = self.folder / secrets.token_hex(4)
        folder.mkdir()
        spool = Spool(str(folder))
        spool.add(reports, Position())
        return spool

    def config(self, name: str) -> Config:
        """What the agent on node1 is told, under any name."""
        return Config((HEAD,), self.port, os.getuid(), name, "/dev/kmsg", self.sockets[NODE1])

    async def deliver(self, *reports: dict[str, Any], name: str = "node1", boot: str = BOOT) -> tuple[bool, Spool, str]:
        """What an agent with these reports does once: whether it was answered, what it still has, what it says."""
        said: list[str] = []
        spool = self.spool(*reports)
        ok = await asyncio.to_thread(Delivery(self.config(name), boot, spool, said.append).deliver, list(reports))
        return ok, spool, " ".join(said)

    async def event(self, seconds: float = 10.0) -> dict[str, Any]:
        return (await asyncio.wait_for(self.queue.get(), seconds))["fault"]

    async def nothing(self, seconds: float = 1.5) -> None:
        with pytest.raises(asyncio.TimeoutError):
            await self.event(seconds)

    def evidence(self) -> list[dict[str, Any]]:
        return self.store.records.kept("node_agent", 1000)


def source() -> Callable[..., Any]:
    spec = importlib.util.spec_from_file_location("node_agent_source", SOURCE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.main


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind((HEAD, 0))
        return listener.getsockname()[1]


@pytest.fixture(scope="session")
def sockets(munge_cluster: Munge) -> dict[str, str]:
    return {address: munge_cluster.socket(address) for address in (HEAD, NODE1, NODE2)}


@pytest.fixture
async def site(
    ledger: LedgerSettings, store: Store, tmp_path: Path, sockets: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Site]:
    monkeypatch.delenv("RUNTIME_DIRECTORY", raising=False)
    store.machines.put(Machine("node1", "node1", "", NODE1))
    store.machines.put(Machine("node2", "node2", "k2", NODE2))
    store.machines.put(Machine("k3", "", "k3", NETWORK + ".13"))
    made = Site(asyncio.Queue(), store, tmp_path, free_port(), sockets, str(tmp_path / "settings.yml"))
    write(made, ledger)
    async with listening(made):
        yield made


def write(site: Site, ledger: LedgerSettings, **changes: Any) -> None:
    data = {
        "cluster": "lab",
        "state_dir": str(site.folder),
        "slurm": {"enabled": False},
        "agents": {"port": site.port, "address": HEAD, "munge_socket": site.sockets[HEAD]},
        "ledger": {**dataclasses.asdict(ledger), **changes},
    }
    (site.folder / "new").write_text(yaml.safe_dump(data), encoding="utf-8")
    (site.folder / "new").rename(site.settings)


@contextlib.asynccontextmanager
async def listening(site: Site) -> AsyncIterator[None]:
    task = asyncio.create_task(source()(site.queue, {"settings": site.settings}))
    try:
        for _turn in range(200):
            try:
                _reader, writer = await asyncio.open_connection(HEAD, site.port)
                writer.close()
                break
            except OSError:
                await asyncio.sleep(0.05)
        await asyncio.sleep(1.2)  # the nodes are read with the first look
        yield
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_report_is_kept_acknowledged_and_sent_by_identifiers(site: Site) -> None:
    hostile = report(lines=["{{ lookup('pipe', 'id') }} \x1b[31m"], device="$(reboot)")
    ok, spool, _said = await site.deliver(hostile)
    assert (ok, spool.oldest(9)) == (True, [])
    event = await site.event()
    (kept,) = site.evidence()
    assert kept["body"]["lines"] == hostile["lines"]
    assert kept["target_key"] == "node:node1"
    assert event["targets"] == [{"node": "node1"}]
    assert event["evidence_ref"] == kept["id"]
    assert (event["kind"], event["suggested"], event["scheduler"]) == ("gpu_fault", "reboot_node", "slurm")
    assert "lookup" not in json.dumps(event)
    assert "reboot)" not in json.dumps(event)
    await site.nothing()  # once a minute


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"action": "reset_gpu"}, ("gpu_fault", "reset_gpu")),
        ({"action": "drain_and_report"}, ("gpu_fault", "quarantine_node")),
        ({"code": "mce", "family": "mce", "action": "drain_and_report"}, ("kernel_fault", "quarantine_node")),
        ({"code": "mce", "family": "mce", "action": "reset_gpu"}, ("kernel_fault", "report")),
        ({"action": "reboot", "verdict": "unknown"}, ("gpu_fault", "report")),
        ({"action": "report"}, ("gpu_fault", "report")),
        ({"action": "ignore"}, None),
        ({"action": "restart_app"}, None),
    ],
)
async def test_what_is_suggested(site: Site, changes: dict[str, Any], expected: Optional[tuple[str, str]]) -> None:
    ok, _spool, _said = await site.deliver(report(**changes))
    assert ok
    assert len(site.evidence()) == 1
    if expected is None:
        await site.nothing()
    else:
        event = await site.event()
        assert (event["kind"], event["suggested"]) == expected


def sealed(argv: list[str], payload: bytes, uid: int = ROOT) -> bytes:
    made = subprocess.run(argv, input=payload, capture_output=True, check=True, user=uid, group=uid).stdout
    return protocol.pack_line({"credential": made.decode().strip()})


async def say(site: Site, origin: str, change: Callable[[dict], dict], **how: Any) -> dict[str, Any]:
    """One exchange by hand: what is sealed is `change`d before; the controller's last line."""
    reader, writer = await asyncio.open_connection(HEAD, site.port, local_addr=(origin, 0))
    nonce = protocol.greeted(protocol.unpack(await reader.readline()))
    message = {"nonce": nonce, "answer": "a" * 32, "node": "node1", "boot_id": BOOT, "reports": [report()]}
    argv = munge.encode_argv(os.getuid(), site.sockets[origin])
    payload = protocol.pack_line(change(message))
    line = await asyncio.to_thread(sealed, argv, payload, how.get("uid", ROOT))
    writer.write(how.get("before", b"") + line)
    answer = protocol.unpack(await reader.readline())
    writer.close()
    return {**answer, "sent": line}


def same(message: dict[str, Any]) -> dict[str, Any]:
    return message


NOT_BELIEVED = [
    (NODE2, same, {}, "says nothing about node1"),
    (NODE1, same, {"uid": NOBODY}, "uid 65534 is not believed"),
    (NODE1, lambda message: {**message, "node": "node9"}, {}, "no node is called node9"),
    (NODE1, lambda message: {**message, "node": "$(id)"}, {}, "node is missing or wrong"),
    (NODE1, lambda message: {**message, "nonce": "b" * 32}, {}, "made for another exchange"),
    (NODE1, lambda message: {**message, "reports": [{"id": 1}]}, {}, "id is missing or wrong"),
    (NODE1, lambda message: {**message, "reports": [report()] * 51}, {}, "more than 50"),
    (NODE1, same, {"before": b"[" * 100000 + b"\n"}, "no JSON"),
    (NODE1, same, {"before": b"x" * 600000}, "limit"),
    (NODE1, same, {"before": b'{"credential": "MUNGE:AwQ:"}\n'}, "unmunge: rc"),
]


@pytest.mark.parametrize(
    ("origin", "change", "how", "why"),
    NOT_BELIEVED,
    ids=[why for *_changes, why in NOT_BELIEVED],  # the addresses are of this process alone
)
async def test_what_is_not_believed(site: Site, origin: str, change: Any, how: dict[str, Any], why: str) -> None:
    answer = await say(site, origin, change, **how)
    assert why in answer["refused"]
    assert site.evidence() == []
    await site.nothing(1.2)


async def test_a_message_counts_once(site: Site) -> None:
    answer = await say(site, NODE1, same)
    assert "credential" in answer
    reader, writer = await asyncio.open_connection(HEAD, site.port)
    await reader.readline()
    writer.write(answer["sent"])
    again = protocol.unpack(await reader.readline())
    writer.close()
    assert "Replayed" in again["refused"]
    assert [kept["id"] for kept in site.evidence()] == [(await site.event())["evidence_ref"]]


async def test_one_bad_report_keeps_no_good_one_back(site: Site) -> None:
    bad, good = report(lines=["x" * 501]), report()
    ok, spool, said = await site.deliver(bad, good)
    assert (ok, spool.oldest(9)) == (True, [])
    assert bad["id"] in said
    assert (await site.event())["evidence_ref"] == site.evidence()[0]["id"]


async def test_nobody_but_the_controller_acknowledges(site: Site, tmp_path: Path) -> None:
    """Somebody has the port while the service is down; his answer bears his own uid."""

    async def pretend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(protocol.pack_line(protocol.greeting("a" * 32)))
        await reader.readline()
        answer = {"answer": "b" * 32, "taken": ["x"], "refused": {}}
        argv = munge.encode_argv(ROOT, site.sockets[HEAD])
        writer.write(await asyncio.to_thread(sealed, argv, protocol.pack_line(answer), NOBODY))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(pretend, HEAD, 0)
    other = site._replace(port=server.sockets[0].getsockname()[1])
    ok, spool, said = await other.deliver(report())
    server.close()
    assert not ok
    assert len(spool.oldest(9)) == 1
    assert "not the controller's" in said


async def test_an_outage_of_the_ledger_acknowledges_nothing(site: Site, ledger: LedgerSettings) -> None:
    write(site, ledger, unix_socket="/nonexistent/s")
    await asyncio.sleep(2)  # a look that has begun has the old settings
    kept = report()
    ok, spool, said = await site.deliver(kept)
    assert not ok
    assert spool.oldest(9) == [kept]
    assert "cannot be kept now" in said
    write(site, ledger)
    await asyncio.sleep(3)
    ok, spool, _said = await site.deliver(kept)
    assert (ok, spool.oldest(9)) == (True, [])
    assert (await site.event())["targets"] == [{"node": "node1"}]


async def test_a_flood_of_one_node_does_not_touch_another(site: Site) -> None:
    async def flood() -> None:
        for turn in range(40):
            await site.deliver(*[report(device="%04x:%02x:00" % (turn, number)) for number in range(50)])

    flooding = asyncio.create_task(flood())
    await asyncio.sleep(1)
    answer = await say(site, NODE2, lambda message: {**message, "node": "node2"})
    assert "credential" in answer
    await flooding
    by_node = [kept["target_key"] for kept in site.evidence()]
    assert by_node.count("node:node2") == 1
    assert by_node.count("node:node1") <= 160  # of 2,000


async def test_the_same_fault_again_is_counted(site: Site) -> None:
    for number in range(3):
        assert (await site.deliver(report(count=number + 1)))[0]
    (kept,) = site.evidence()
    assert kept["body"]["count"] == 3
    await site.event()
    await site.nothing()


@pytest.mark.parametrize("ending", ["boot", "closed", "none"])
async def test_after_a_restart_what_lasts_is_sent_again(
    ledger: LedgerSettings, store: Store, tmp_path: Path, sockets: dict[str, str], ending: str
) -> None:
    made = Site(asyncio.Queue(), store, tmp_path, free_port(), sockets, str(tmp_path / "settings.yml"))
    store.machines.put(Machine("node1", "node1", "", NODE1))
    write(made, ledger)
    async with listening(made):
        assert (await made.deliver(report()))[0]
        await made.event()
        if ending == "boot":
            assert (await made.deliver(boot=NEXT_BOOT))[0]
    if ending == "boot":
        store.machines.seen_healthy("node1", NEXT_BOOT, "")
    if ending == "closed":
        number = store.incidents.open(fault_of("node1"), Target("node", "node1"), "node:node1", "node1", Request()).id
        store.database.write(
            "UPDATE incidents SET closed_at = %s, open_key = NULL WHERE id = %s", (store.now() + 1, number)
        )
    async with listening(made):
        if ending == "none":
            assert (await made.event())["targets"] == [{"node": "node1"}]
        else:
            await made.nothing()


class Node:
    """The agent of node1 as its unit starts it, from a copy of the folders that the role installs."""

    def __init__(self, site: Site) -> None:
        self.folder = site.folder / "node1"
        modules = Path(protocol.__file__).parents[1]
        for name in ("agent", "logs"):
            ignore = shutil.ignore_patterns("__pycache__")
            shutil.copytree(modules / name, self.folder / "lib/job_recovery" / name, ignore=ignore)
        self.log = self.folder / "kernel.log"
        told = site.config("node1")._replace(kernel_log=str(self.log), catalogue={})._asdict()
        (self.folder / "agent.json").write_text(json.dumps(told))
        (self.folder / "start.py").write_text(
            "import sys\nsys.path.insert(0, %r)\nfrom job_recovery.agent.service import main\nsys.exit(main(%r))\n"
            % (str(self.folder / "lib"), str(self.folder / "agent.json"))
        )
        self.process: Optional[subprocess.Popen[bytes]] = None

    def start(self) -> None:
        environment = {"PATH": os.environ["PATH"], "STATE_DIRECTORY": str(self.folder)}
        argv = [sys.executable, "-IS", str(self.folder / "start.py")]
        self.process = subprocess.Popen(argv, env=environment, stdout=subprocess.DEVNULL)

    def kernel_says(self, *texts: str) -> None:
        with self.log.open("a") as handle:
            handle.write("".join("4,%d,1000,-;%s\n" % (number, text) for number, text in enumerate(texts)))

    def state(self) -> dict[str, Any]:
        path = self.folder / "state.json"
        return json.loads(path.read_text()) if path.exists() else {"reports": []}

    def peak_kib(self) -> int:
        status = Path("/proc/%d/status" % self.process.pid).read_text()
        return int(status.partition("VmHWM:")[2].split()[0])

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(10)


@pytest.fixture
def node(site: Site) -> Iterator[Node]:
    made = Node(site)
    yield made
    made.kill()


async def test_what_the_kernel_says_comes_to_the_ledger(site: Site, node: Node) -> None:
    node.start()
    node.kernel_says("usb 1-1: new device", XID79)
    event = await site.event(60)
    assert (event["kind"], event["targets"], event["suggested"]) == ("gpu_fault", [{"node": "node1"}], "reboot_node")
    (kept,) = site.evidence()
    assert (kept["body"]["code"], kept["body"]["device"], kept["body"]["lines"]) == ("xid79", "0000:05:00", [XID79])
    assert node.peak_kib() < 30 * 1024
    node.process.terminate()
    assert await asyncio.to_thread(node.process.wait, 30) == 0


async def test_a_node_that_was_just_registered_is_heard_soon(site: Site) -> None:
    ok, _spool, said = await site.deliver(report(), name="node7")
    assert (ok, "no node is called node7" in said) == (False, True)
    site.store.machines.put(Machine("node7", "node7", "", NODE1))
    await asyncio.sleep(3.5)
    ok, _spool, said = await site.deliver(report(), name="node7")
    assert ok, said


async def test_a_new_report_waits_for_no_pause(site: Site) -> None:
    spool = site.spool(report())
    sender = Delivery(site.config("node1"), BOOT, spool, print)
    began = time.monotonic()
    adding = threading.Timer(0.5, lambda: spool.add([report()], Position()))
    adding.start()
    await asyncio.to_thread(sender._pause, 60.0, bool)
    assert 1.9 < time.monotonic() - began < 30


async def test_a_kill_and_a_controller_that_is_away_lose_nothing(
    site: Site, node: Node, ledger: LedgerSettings
) -> None:
    write(site, ledger, unix_socket="/nonexistent/s")
    await asyncio.sleep(2)  # a look that has begun has the old settings
    node.start()
    node.kernel_says(XID79)
    until = asyncio.get_running_loop().time() + 60
    while not node.state()["reports"]:
        assert asyncio.get_running_loop().time() < until
        await asyncio.sleep(0.05)
    node.kill()
    node.kernel_says(XID79.replace("0000:05:00", "0000:06:00"))
    write(site, ledger)
    await asyncio.sleep(1)
    node.start()
    devices = set()
    while len(devices) < 2:
        await site.event(90)
        devices = {kept["body"]["device"] for kept in site.evidence()}
    assert devices == {"0000:05:00", "0000:06:00"}
    assert len(site.evidence()) == 2


async def test_nobody_listens_without_a_port(ledger: LedgerSettings, tmp_path: Path, sockets: dict[str, str]) -> None:
    made = Site(asyncio.Queue(), None, tmp_path, 0, sockets, str(tmp_path / "settings.yml"))
    write(made, ledger)
    task = asyncio.create_task(source()(made.queue, {"settings": made.settings}))
    await asyncio.sleep(1)
    assert not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    beat = json.loads((tmp_path / "node_agent.beat.json").read_text(encoding="utf-8"))
    assert beat["error"] is None
