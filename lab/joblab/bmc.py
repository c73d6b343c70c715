# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The BMC of every node: one Redfish server on this machine, at the gateway of the lab's network.

``https://10.89.N.1:8443/redfish/v1/Systems/node1``, by the lab's authority; user ``recovery``, password in secret/bmc.
The server is lab/files/bmc/server.py. It can be made to lie, see ``Behaviour``.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import secrets
import ssl
import sys
import time
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from . import cache, command, hostfiles, pki, processes
from .errors import LabError
from .instance import NODES, Instance

USER = "recovery"
PORT = 8443

_FILES = Path(__file__).resolve().parents[1] / "files" / "bmc"
_DAEMON = "bmc"
_INSTALL_SECONDS = 600
_READY_SECONDS = 30
#: Part of the cache's key: raised when the way of installing changes.
_PACKAGES_RECIPE = 2
#: A process that was just started may not be in its cgroup yet.
_SPAWN_SECONDS = 2
_CALL_SECONDS = 5


@dataclass(frozen=True)
class Behaviour:
    """How the BMC misbehaves; the default is a good one."""

    #: Every answer comes this much later.
    delay_seconds: float = 0.0
    #: These two nodes each tell the other's UUID, as after swapped cables or boards.
    swap_uuid: tuple[str, ...] = ()
    #: A reset of these nodes is answered with 503 and not done.
    refuse: tuple[str, ...] = ()
    #: A reset of these nodes is answered with success and not done.
    ignore: tuple[str, ...] = ()


def url(instance: Instance) -> str:
    """Where the BMC answers, seen from this machine and from the lab's hosts."""
    return f"https://{instance.gateway}:{PORT}"


def folder(instance: Instance) -> Path:
    """Folder of the server's own files."""
    return instance.state / "bmc"


def password(instance: Instance) -> str:
    """Password of the account ``USER``; made up at its first use and kept (mode 0600)."""
    file = instance.secret("bmc")
    if not file.exists():
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        hostfiles.write_private(file, secrets.token_urlsafe(24))
    return file.read_text(encoding="ascii").strip()


# Behaviour


def behaviour_file(instance: Instance) -> Path:
    """The JSON file that makes the BMC lie: Behaviour's fields; not there, it is a good one."""
    return folder(instance) / "behaviour.json"


def behaviour(instance: Instance) -> Behaviour:
    """The behaviour that is asked for now. Raises LabError if the file is not understood."""
    file = behaviour_file(instance)
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Behaviour()
    return parse_behaviour(text, str(file))


def parse_behaviour(text: str, source: str = "behaviour") -> Behaviour:
    """A Behaviour from JSON. Raises LabError for an unknown field, a wrong type or an unknown node."""
    try:
        given = json.loads(text)
        unknown = set(given) - {field.name for field in fields(Behaviour)}
        lists = {name: tuple(given.get(name, ())) for name in ("swap_uuid", "refuse", "ignore")}
        parsed = Behaviour(delay_seconds=float(given.get("delay_seconds", 0)), **lists)
    except (ValueError, TypeError) as exc:
        raise LabError(f"{source} is no JSON object of the BMC's behaviour: {exc}") from exc
    if unknown:
        raise LabError(f"{source}: unknown {', '.join(sorted(unknown))}")
    strangers = {node for nodes in lists.values() for node in nodes} - set(NODES)
    if strangers:
        raise LabError(f"{source}: no such node: {', '.join(sorted(map(str, strangers)))}")
    if len(parsed.swap_uuid) not in (0, 2) or parsed.delay_seconds < 0:
        raise LabError(f"{source}: swap_uuid names two nodes, delay_seconds is not negative")
    return parsed


def misbehave(instance: Instance, wanted: Behaviour) -> None:
    """Make the BMC behave like this from the next request on; ``Behaviour()`` makes it good again."""
    text = json.dumps(asdict(wanted))
    parse_behaviour(text)
    folder(instance).mkdir(parents=True, exist_ok=True)
    hostfiles.write_private(behaviour_file(instance), text)


# What it did


@dataclass(frozen=True)
class Switched:
    """A node's power was taken to another level at somebody's request; `at` in epoch seconds, `level` On or Off."""

    at: float
    node: str
    level: str


def record_switch(instance: Instance, node: str, level: str) -> None:
    """Write into the BMC's journal that a request changed a node's power."""
    line = json.dumps(asdict(Switched(time.time(), node, level))) + "\n"
    with _journal(instance).open("a", encoding="utf-8") as journal:
        journal.write(line)


def switches(instance: Instance, since: float = 0.0) -> list[Switched]:
    """What requests have changed since then, the oldest first."""
    try:
        lines = _journal(instance).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    return [one for one in (Switched(**json.loads(line)) for line in lines) if one.at >= since]


def _journal(instance: Instance) -> Path:
    return folder(instance) / "switches.jsonl"


def told_uuid(instance: Instance, node: str, behaves: Behaviour) -> str:
    """The UUID that the BMC tells for a node: its own, unless two are swapped."""
    if node in behaves.swap_uuid:
        (node,) = [other for other in behaves.swap_uuid if other != node]
    return instance.smbios_uuid(node)


# The server


def start(instance: Instance) -> None:
    """Start the BMC if it does not run, and wait until it answers with our credentials and refuses others."""
    pki.ensure(instance)
    password(instance)
    folder(instance).mkdir(mode=0o700, parents=True, exist_ok=True)
    packages = _packages()
    path = [str(packages.path / "site-packages"), str(Path(__file__).resolve().parents[1])]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path), "PYTHONDONTWRITEBYTECODE": "1"}
    argv = [sys.executable, str(_FILES / "server.py"), str(instance.number)]
    processes.start_daemon(instance, _DAEMON, argv, env=env)
    log = instance.log / f"{_DAEMON}.log"
    begun = time.monotonic()

    def ready() -> bool:
        if not processes.daemon_runs(instance, _DAEMON) and time.monotonic() - begun > _SPAWN_SECONDS:
            tail = log.read_text(encoding="utf-8", errors="replace")[-1500:] if log.exists() else ""
            raise LabError(f"The BMC's server ended:\n{tail}")
        return _answer(instance, authenticated=True) == http.client.OK

    command.wait_for(f"the BMC answers at {url(instance)} (its log: {log})", ready, timeout=_READY_SECONDS)
    status = _answer(instance, authenticated=False)
    if status != http.client.UNAUTHORIZED:
        raise LabError(f"The BMC answered {status} to a request without credentials instead of 401")


def stop(instance: Instance) -> None:
    """End the BMC's server. Nothing happens if it does not run."""
    processes.stop_daemon(instance, _DAEMON)


def running(instance: Instance) -> bool:
    """Whether the BMC's server is there and answers."""
    return processes.daemon_runs(instance, _DAEMON) and _answer(instance, authenticated=True) == http.client.OK


def _packages() -> cache.Artifact:
    """sushy-tools and what it needs, in a folder of the cache (for this version of Python)."""
    requirements = _FILES / "requirements.txt"

    def install(target: Path) -> None:
        argv = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile",
                "--target", str(target / "site-packages"), "--requirement", str(requirements)]
        try:
            command.run(argv, timeout=_INSTALL_SECONDS)
        except LabError as exc:
            if "No module named pip" in str(exc):
                raise LabError("pip is missing: apt-get install python3-pip") from exc
            raise
        # The server calls nobody, so it needs no list of authorities; and machines that add their own authority to
        # every copy of this file would make the cache look damaged.
        (target / "site-packages" / "certifi" / "cacert.pem").unlink()

    material = [_PACKAGES_RECIPE, requirements, f"{sys.version_info.major}.{sys.version_info.minor}"]
    return cache.ensure("bmc", material, install, doing="Installing the Redfish emulator (sushy-tools)")


def _answer(instance: Instance, *, authenticated: bool) -> int | None:
    """HTTP status of the list of systems, or none if nothing answers."""
    headers = {}
    if authenticated:
        token = base64.b64encode(f"{USER}:{password(instance)}".encode()).decode()
        headers["Authorization"] = f"Basic {token}"
    try:
        context = ssl.create_default_context(cafile=str(pki.path(instance) / "ca.crt"))
        connection = http.client.HTTPSConnection(instance.gateway, PORT, timeout=_CALL_SECONDS, context=context)
        try:
            connection.request("GET", "/redfish/v1/Systems", headers=headers)
            return connection.getresponse().status
        finally:
            connection.close()
    except (OSError, http.client.HTTPException):
        return None
