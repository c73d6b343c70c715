# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A small site that loses nodes: executables in the place of Slurm and of the site's power tool, and real TCP ports.

Each node is a loopback address of its own. A node that is silent has listeners whose queues are full: the kernel drops
what comes, as a machine without power does. One that answers has none, and the kernel refuses.
"""

from __future__ import annotations

import json
import pathlib
import socket
import sys
from typing import Any

import yaml
from ansible_collections.mission_control.job_recovery.plugins.module_utils.nodes import probe
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.store import Store
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import LedgerSettings
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import Machine

from ..plugins.module_utils.ports import NETWORK, full_listener

UUID = "4c4c4544-0042-3010-8058-c7c04f4a%04x"
OPT_IN = '{"APS":{"auto_resume_mode":"requeue"}}'
_SSH_PORT, _SLURMD_PORT = 22022, 22018

_TOOL = """\
#!%s -IS
import json, pathlib, re, sys
here = pathlib.Path(%r)
world = json.loads((here / "world.json").read_text())
tool, arguments = pathlib.Path(sys.argv[0]).name, sys.argv[1:]
with open(here / "calls", "a") as calls:
    calls.write(tool + " " + " ".join(arguments) + "\\n")
if tool == "sinfo":
    widths = [int(width) for width in re.findall(":([0-9]+)", arguments[-1])]
    for name, (state, reason) in world["nodes"].items():
        print("".join(cell.ljust(width) for cell, width in zip((name, state, reason), widths)))
elif tool == "squeue" and "--json" in arguments:
    print(json.dumps({"jobs": [
        {"job_id": job["id"], "job_state": [job["state"]], "comment": job["comment"], "nodes": job["nodes"]}
        for job in world["jobs"]
    ]}))
elif tool == "squeue" and "--states=PENDING,RUNNING,SUSPENDED" in arguments:
    pass  # nothing waits
elif tool == "squeue":
    line = [word for word in arguments if word.startswith("--format=")][0][len("--format="):]
    for job in world["jobs"]:
        told = {"A": job["id"], "F": job["id"], "T": job["state"], "U": 1000, "N": job["nodes"], "P": "main"}
        print(re.sub("%%(.)", lambda found: str(told.get(found[1], "N/A")), line))
elif tool == "scontrol" and arguments == ["show", "config"]:
    print("Configuration data\\nSLURM_VERSION           = 24.11.5\\nSlurmdPort              = %d")
elif tool == "power":
    word = world["power"].get(arguments[1], {})
    print("%%s %%s" %% (arguments[1], word.get(arguments[0], "cannot be reached")))
elif tool != "sacct":
    sys.exit("unknown: %%r" %% sys.argv)
"""


class LossySite:
    """Nodes `n1`, `n2` ... of which each may run a job, be silent, and have a BMC that says something."""

    def __init__(self, folder: pathlib.Path, ledger: LedgerSettings, store: Store, count: int) -> None:
        self.folder, self._ledger, self._store = folder, ledger, store
        self._full: dict[str, list[socket.socket]] = {}
        self.names: list[str] = []
        self.world: dict[str, Any] = {"nodes": {}, "jobs": [], "power": {}}
        self._install()
        self.add(*range(1, count + 1))
        self.settings(silence=60.0)

    def add(self, *numbers: int) -> None:
        """Nodes that are well, known to Slurm and to the ledger."""
        for number in numbers:
            name, uuid = "n%d" % number, UUID % number
            self.names.append(name)
            self.world["nodes"][name] = ["idle", "none"]
            self.world["power"][name] = {"status": "ON", "identify": uuid}
            address = "%s:%d" % (self.address(name), _SSH_PORT)
            self._store.machines.put(Machine(name, name, "", address, "site:" + name, uuid))
        self.write()

    def address(self, name: str) -> str:
        return "%s.%s" % (NETWORK, name[1:])

    def settings(self, path: str = "settings.yml", slurm: dict[str, Any] | None = None, **limits: float) -> str:
        tool = str(self.folder / "bin/power")
        data = {
            "cluster": "lab",
            "state_dir": str(self.folder),
            "scope": {"partitions": ["main"]},
            "slurm": {"bin_dir": str(self.folder / "bin"), "interval": 0.2, "job_interval": 0.5, **(slurm or {})},
            "ledger": {name: getattr(self._ledger, name) for name in self._ledger.__dataclass_fields__},
            "nodes": {"ssh_port": _SSH_PORT},
            "power": {
                "commands": {
                    "status": [tool, "status", "{name}"],
                    "identify": [tool, "identify", "{name}"],
                    "switch_on": [tool, "on", "{name}"],
                    "switch_off": [tool, "off", "{name}"],
                    "on_pattern": "{name} ON",
                    "off_pattern": "{name} OFF",
                }
            },
            "limits": {"blast_radius_percent": 100.0, **limits},
        }
        (self.folder / path).write_text(yaml.safe_dump(data), encoding="utf-8")
        return str(self.folder / path)

    def job(self, number: int, node: str, comment: str = OPT_IN, state: str = "RUNNING") -> None:
        self.world["jobs"].append({"id": number, "state": state, "comment": comment, "nodes": node})
        self.world["nodes"][node][0] = "allocated"
        self.write()

    def bmc(self, name: str, **told: str) -> None:
        """What the power tool says of a node: `status`, `identify`."""
        self.world["power"][name].update(told)
        self.write()

    def lose(self, name: str) -> None:
        """No port of it answers any more."""
        ports = (probe.QUIET_PORT, _SLURMD_PORT, _SSH_PORT)
        self._full[name] = [sock for port in ports for sock in full_listener(self.address(name), port)]

    def bring_back(self, name: str) -> None:
        for sock in self._full.pop(name, []):
            sock.close()

    def close(self) -> None:
        for name in list(self._full):
            self.bring_back(name)

    def write(self) -> None:
        fresh = self.folder / "world.new"
        fresh.write_text(json.dumps(self.world), encoding="utf-8")
        fresh.rename(self.folder / "world.json")

    def beat(self, source: str) -> dict[str, Any]:
        """The source's last sign of life."""
        return json.loads((self.folder / (source + ".beat.json")).read_text(encoding="utf-8"))

    @property
    def recorded(self) -> dict[str, float]:
        """Nodes that are recorded as silent for long."""
        path = self.folder / "silent.json"
        return json.loads(path.read_text(encoding="utf-8"))["silent"] if path.exists() else {}

    @property
    def calls(self) -> list[str]:
        return (self.folder / "calls").read_text(encoding="utf-8").splitlines()

    def _install(self) -> None:
        (self.folder / "bin").mkdir()
        for tool in ("sinfo", "squeue", "scontrol", "sacct", "power"):
            path = self.folder / "bin" / tool
            path.write_text(_TOOL % (sys.executable, str(self.folder), _SLURMD_PORT), encoding="utf-8")
            path.chmod(0o755)
