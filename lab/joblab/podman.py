# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The containers that are the lab's hosts.

podman works on state of this instance only: its graph root is in the state folder, everything volatile in the
instance's own /run (processes.py), and the image is read from a store in the cache.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from . import cache, command, image, processes
from .errors import LabError
from .instance import HEAD, HOSTS, Instance

#: Folders of this machine's file system that a host needs besides its overlay: NAME in .lab/N/volumes/HOST -> path.
#: containerd and kubelet do not work on an overlay file system.
VOLUMES = {"containerd": "/var/lib/containerd", "kubelet": "/var/lib/kubelet"}

_CONTAINERS_CONF = """\
[containers]
default_ulimits = ["nofile=20000:20000", "nproc=4096:4096"]
pids_limit = 0
log_driver = "k8s-file"

[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"

[network]
network_backend = "netavark"
network_config_dir = "{networks}"
"""

_STORAGE_CONF = """\
[storage]
driver = "overlay"
graphroot = "{graphroot}"
runroot = "/run/containers/storage"

[storage.options]
additionalimagestores = ["{images}"]
"""


def folder(instance: Instance) -> Path:
    """Folder of podman's configuration and graph root."""
    return instance.state / "podman"


def configure(instance: Instance, image_artifact: cache.Artifact) -> None:
    """Write podman's configuration and the lab's network."""
    networks = folder(instance) / "networks"
    networks.mkdir(parents=True, exist_ok=True)
    _write(folder(instance) / "containers.conf", _CONTAINERS_CONF.format(networks=networks))
    storage = _STORAGE_CONF.format(graphroot=folder(instance) / "root", images=image_artifact.path / image.STORE)
    _write(folder(instance) / "storage.conf", storage)
    _write(networks / f"{instance.name}.json", json.dumps(_network(instance), indent=1))


def _network(instance: Instance) -> dict[str, object]:
    """An internal network: netavark then writes no firewall rules, and the hosts have no way to the internet."""
    return {
        "name": instance.name,
        "id": instance.name.encode().hex().ljust(64, "0"),
        "driver": "bridge",
        "network_interface": instance.name,
        "created": "2026-01-01T00:00:00Z",
        "subnets": [{"subnet": str(instance.subnet), "gateway": instance.gateway}],
        "ipv6_enabled": False,
        "internal": True,
        "dns_enabled": False,
        "ipam_options": {"driver": "host-local"},
    }


def run(
    instance: Instance,
    args: Sequence[str],
    *,
    stdin: str | bytes | None = None,
    timeout: float = 60,
    check: bool = True,
) -> subprocess.CompletedProcess[str]:
    """Run podman with ``args`` on this instance; see command.run."""
    env = {
        **os.environ,
        "CONTAINERS_CONF": str(folder(instance) / "containers.conf"),
        "CONTAINERS_STORAGE_CONF": str(folder(instance) / "storage.conf"),
    }
    argv = processes.in_namespace(instance, ["podman", *args])
    return command.run(argv, stdin=stdin, timeout=timeout, check=check, env=env)


def execute(
    instance: Instance,
    host: str,
    argv: Sequence[str],
    *,
    stdin: str | bytes | None = None,
    timeout: float = 30,
    check: bool = True,
) -> subprocess.CompletedProcess[str]:
    """Run a command on a host by way of podman: also when its network or sshd is down."""
    flags = ["--interactive"] if stdin is not None else []
    return run(instance, ["exec", *flags, instance.container(host), *argv], stdin=stdin, timeout=timeout, check=check)


def create(instance: Instance, hosts: Sequence[str]) -> None:
    """Create and start containers, side by side."""
    with ThreadPoolExecutor(max_workers=len(HOSTS)) as pool:
        list(pool.map(lambda host: run(instance, _run_arguments(instance, host), timeout=120), hosts))


def _run_arguments(instance: Instance, host: str) -> list[str]:
    volumes = {
        str(instance.home): "/home",
        str(instance.seed(host)): "/opt/lab/seed:ro",
        str(instance.share): "/opt/lab/share:ro",
        str(cache.root()): f"{cache.IN_HOSTS}:ro",
    }
    if host != HEAD:
        volumes |= {str(instance.volume(host, name)): path for name, path in VOLUMES.items()}
    for source in volumes:
        Path(source).mkdir(parents=True, exist_ok=True)
    return [
        "run",
        "--detach",
        "--privileged",
        "--systemd=always",
        "--restart=always",
        "--stop-signal=SIGRTMIN+3",
        f"--name={instance.container(host)}",
        f"--hostname={host}",
        f"--network={instance.name}",
        f"--ip={instance.address(host)}",
        f"--mac-address={instance.mac(host)}",
        f"--cgroup-parent=/{instance.name}",
        f"--env=LAB_GATEWAY={instance.gateway}",
        "--no-hosts",
        "--dns=none",
        *(f"--volume={source}:{target}" for source, target in volumes.items()),
        image.NAME,
        "/opt/lab/seed/usr/local/sbin/lab-init",
    ]


def containers(instance: Instance) -> dict[str, dict[str, object]]:
    """What podman knows of each host's container that exists: ``id``, ``running``, ``monitor`` (its process or 0)."""
    names = {instance.container(host): host for host in HOSTS}
    listed = run(instance, ["ps", "--all", "--format", "{{.Names}}"]).stdout.split()
    present = [name for name in listed if name in names]
    if not present:
        return {}
    described = json.loads(run(instance, ["inspect", "--type=container", *present]).stdout)
    return {
        names[item["Name"]]: {
            "id": item["Id"],
            "running": item["State"]["Running"],
            "monitor": item["State"].get("ConmonPid", 0),
        }
        for item in described
    }


def status(instance: Instance, host: str) -> str:
    """podman's word for the state of a host's container: ``running``, ``exited``, ``created`` ..."""
    argv = ["container", "inspect", "--format={{.State.Status}}", instance.container(host)]
    return run(instance, argv).stdout.strip()


def record_ids(instance: Instance) -> None:
    """Keep the containers' ids, which name their cgroups, where no podman is needed to read them."""
    ids = {host: item["id"] for host, item in containers(instance).items()}
    _write(instance.state / "containers.json", json.dumps(ids))


def group(instance: Instance, host: str) -> Path:
    """cgroup of a host's container. Raises LabError if the lab is not up."""
    try:
        ids = json.loads((instance.state / "containers.json").read_text(encoding="utf-8"))
        return processes.cgroup(instance) / f"libpod-{ids[instance.known(host)]}"
    except (OSError, KeyError) as exc:
        raise LabError(f"Lab instance {instance.number} is not up (lab/up brings it up)") from exc


def init(instance: Instance, host: str) -> int:
    """Number on this machine of a host's own first process; 0 while it is off.

    It is not the lowest number of the host's: those begin again at the end of their range.
    """
    levels = {pid: _numbers(pid) for pid in processes.pids(group(instance, host))}
    # a pod's first process is number 1, too, one level below
    firsts = [pid for pid, numbers in levels.items() if numbers[-1:] == ["1"]]
    return min(firsts, key=lambda pid: len(levels[pid]), default=0)


def _numbers(pid: int) -> list[str]:
    """A process's numbers, from this machine's view down to its own; none if it is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return []
    return next((line.split()[1:] for line in status.splitlines() if line.startswith("NSpid:")), [])


def _write(path: Path, text: str) -> None:
    """Replace a file in one step, so that an interruption never leaves half of it."""
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)
