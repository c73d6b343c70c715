# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a lab instance is called and where its parts are: names, addresses and paths, nothing else.

Several instances can run on one machine; ``LAB_INSTANCE`` (0 to 9, default 0) picks one.
"""

from __future__ import annotations

import ipaddress
import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .errors import LabError

HEAD = "head"
NODES = ("node1", "node2", "node3", "node4")
HOSTS = (HEAD, *NODES)
INSTANCES = range(10)

_UUID_NAMESPACE = uuid.UUID("6f0f5c0e-94a1-5c55-9f43-0d6a2f0c7b11")


@dataclass(frozen=True)
class Instance:
    """One lab: a head and four compute nodes on a network of their own."""

    number: int
    checkout: Path

    @property
    def name(self) -> str:
        """Name of this instance's network, bridge and cgroup, for example ``jrlab-0``."""
        return f"jrlab-{self.number}"

    # Hosts and addresses

    @property
    def head(self) -> str:
        """Host name of the machine with slurmctld, the database and the control plane."""
        return HEAD

    @property
    def nodes(self) -> tuple[str, ...]:
        """Host names of the compute nodes; also their Slurm and Kubernetes names."""
        return NODES

    @property
    def hosts(self) -> tuple[str, ...]:
        """Every host, the head first."""
        return HOSTS

    @property
    def subnet(self) -> ipaddress.IPv4Network:
        """Network of all hosts, for example 10.89.0.0/24."""
        return ipaddress.IPv4Network(f"10.89.{self.number}.0/24")

    @property
    def gateway(self) -> str:
        """Address of this machine on the lab's bridge; services outside the containers (the BMC) bind to it."""
        return str(self.subnet[1])

    def address(self, host: str) -> str:
        """IPv4 address of ``head`` (.10) or of ``node1`` to ``node4`` (.11 to .14)."""
        return str(self.subnet[10 + HOSTS.index(self.known(host))])

    def mac(self, host: str) -> str:
        """Hardware address of a host: the same after a reboot, or its neighbours would look for the old one."""
        return f"02:4a:52:00:{self.number:02x}:{HOSTS.index(self.known(host)):02x}"

    def container(self, host: str) -> str:
        """Name of the container that is this host, for example ``jrlab-0-node1``."""
        return f"{self.name}-{self.known(host)}"

    def known(self, host: str) -> str:
        """The same name, if it is a host of the lab. Raises LabError if not."""
        if host not in HOSTS:
            raise LabError(f"No host {host!r} in the lab; there are: {', '.join(HOSTS)}")
        return host

    def node_index(self, node: str) -> int:
        """1 to 4 for ``node1`` to ``node4``. Raises LabError for anything else."""
        if node not in NODES:
            raise LabError(f"No compute node {node!r} in the lab; there are: {', '.join(NODES)}")
        return NODES.index(node) + 1

    # Identities: the same after every reboot and every `up`, as those of hardware are

    def machine_id(self, host: str) -> str:
        """/etc/machine-id of a host: 32 hexadecimal digits."""
        return self._uuid("machine-id", host).hex

    def smbios_uuid(self, host: str) -> str:
        """Product UUID of a host, as its BMC tells it; containers show it in /etc/lab/product_uuid."""
        return str(self._uuid("smbios", host))

    def _uuid(self, kind: str, host: str) -> uuid.UUID:
        return uuid.uuid5(_UUID_NAMESPACE, f"{kind}/{self.number}/{self.known(host)}")

    # Paths

    @property
    def state(self) -> Path:
        """Folder with everything that belongs to this instance alone; removed by ``lab/down --purge``."""
        return self.checkout / ".lab" / str(self.number)

    @property
    def share(self) -> Path:
        """Folder on this machine that all hosts see read only as /opt/lab/share."""
        return self.state / "share"

    @property
    def home(self) -> Path:
        """Folder on this machine that is /home on all hosts."""
        return self.state / "home"

    @property
    def log(self) -> Path:
        """Folder for logs of what runs outside the containers."""
        return self.state / "log"

    @property
    def known_hosts(self) -> Path:
        """OpenSSH known_hosts with the host keys of all hosts."""
        return self.state / "known_hosts"

    @property
    def ssh_key(self) -> Path:
        """Private key that logs in as root on every host."""
        return self.state / "keys" / "id_ed25519"

    @property
    def inventory(self) -> Path:
        """Ansible inventory of this instance."""
        return self.state / "inventory" / "hosts.yml"

    def volume(self, host: str, name: str) -> Path:
        """Folder on this machine's file system behind a host's folder (see podman.VOLUMES)."""
        return self.state / "volumes" / self.known(host) / name

    def seed(self, host: str) -> Path:
        """Folder whose content is copied over / of a host at its first boot."""
        return self.state / "seed" / self.known(host)

    def secret(self, name: str) -> Path:
        """File (mode 0600, no newline at its end) that holds one secret, for example ``mysql_root``."""
        return self.state / "secret" / name


def checkout() -> Path:
    """The checkout that this file is part of."""
    return Path(__file__).resolve().parents[2]


def from_environment(environ: Mapping[str, str] = os.environ) -> Instance:
    """The instance that LAB_INSTANCE names. Raises LabError if it is not a number from 0 to 9."""
    text = environ.get("LAB_INSTANCE", "0") or "0"
    if not text.isascii() or not text.isdigit() or int(text) not in INSTANCES:
        raise LabError(f"LAB_INSTANCE must be a number from 0 to 9, not {text!r}")
    return Instance(int(text), checkout())
