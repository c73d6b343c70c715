# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What this machine must offer, and Debian's packages on it."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from . import cache, command, progress
from .errors import LabError
from .instance import Instance

GIB = 1 << 30
#: Free memory for five hosts with Slurm and Kubernetes (1.3 GB measured) and the builds before (2 GB measured).
MEMORY_BYTES = 4 * GIB
#: Free disk for the lab's own folder: containers, images, volumes.
STATE_DISK_BYTES = 5 * GIB
#: Free disk for the cache while it is filled (compiler caches included).
CACHE_DISK_BYTES = 15 * GIB

#: Commands that the lab needs, and Debian's packages that bring them.
PACKAGES = {
    "podman": "podman",
    "crun": "crun",
    "/usr/lib/podman/netavark": "netavark",
    "mmdebstrap": "mmdebstrap",
    "nft": "nftables",
    "iptables": "iptables",
    "newuidmap": "uidmap",
    "ssh": "openssh-client",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "openssl": "openssl",
}


@dataclass(frozen=True)
class Requirement:
    """One thing this machine must offer; ``problem`` says what is missing, or nothing."""

    title: str
    problem: Callable[[Instance], str]


def _root(_instance: Instance) -> str:
    return "" if os.geteuid() == 0 else "the lab makes namespaces and mounts: run this as root (sudo lab/up)"


def check_root(command: str) -> None:
    """Raises LabError unless this is root, before anything is touched."""
    if os.geteuid():
        raise LabError(f"The lab is root's: run this as root (sudo {command})")


def _debian(_instance: Instance) -> str:
    if shutil.which("apt-get") and Path("/etc/debian_version").exists():
        return ""
    return "the lab installs Debian packages: run it on Debian 12 or newer (a virtual machine will do)"


def _architecture(_instance: Instance) -> str:
    machine = platform.machine()
    return "" if machine in ("x86_64", "aarch64") else f"no packages for a {machine} machine"


def _cgroup2(_instance: Instance) -> str:
    if cgroup2_mount() is None:
        return "no cgroup2 hierarchy is mounted (boot with systemd, or mount -t cgroup2 cgroup2 /sys/fs/cgroup/unified)"
    return ""


def _memory(instance: Instance) -> str:
    if (instance.state / "containers.json").exists():  # it is up: what it uses is used already
        return ""
    free = available_memory(Path("/proc/meminfo").read_text(encoding="ascii"))
    return "" if free >= MEMORY_BYTES else f"{_gib(free)} of memory available, {_gib(MEMORY_BYTES)} needed"


def _state_disk(instance: Instance) -> str:
    return _disk(instance.checkout, STATE_DISK_BYTES)


def _cache_disk(_instance: Instance) -> str:
    needed = CACHE_DISK_BYTES if not any(cache.root().glob("image-*")) else STATE_DISK_BYTES
    return _disk(cache.root(), needed)


def _visible(instance: Instance) -> str:
    """The lab has its own /run and /dev/shm; nothing it needs may lie in this machine's."""
    for path in (instance.checkout, cache.root()):
        if path.is_relative_to("/run") or path.is_relative_to("/dev/shm"):
            return f"{path} is in memory that the lab cannot see: use a folder on disk"
    return ""


REQUIREMENTS = (
    Requirement("root", _root),
    Requirement("Debian", _debian),
    Requirement("processor", _architecture),
    Requirement("cgroup2", _cgroup2),
    Requirement("memory", _memory),
    Requirement("disk for the lab", _state_disk),
    Requirement("disk for the cache", _cache_disk),
    Requirement("place of checkout and cache", _visible),
)


def problems(instance: Instance) -> list[str]:
    """What this machine lacks, one line each; none means the lab can be brought up."""
    found = ((requirement.title, requirement.problem(instance)) for requirement in REQUIREMENTS)
    return [f"{title}: {problem}" for title, problem in found if problem]


def check(instance: Instance) -> None:
    """Raises LabError that names everything this machine lacks."""
    if lacking := problems(instance):
        raise LabError("This machine cannot run the lab:\n" + "\n".join(f"  - {line}" for line in lacking))


def cgroup2_mount(mountinfo: str | None = None) -> Path | None:
    """Where the whole cgroup2 hierarchy is mounted (/sys/fs/cgroup, or /sys/fs/cgroup/unified beside version 1)."""
    text = Path("/proc/self/mountinfo").read_text(encoding="utf-8") if mountinfo is None else mountinfo
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split()
        if after.split()[:1] == ["cgroup2"] and fields[3] == "/":
            return Path(fields[4])
    return None


def available_memory(meminfo: str) -> int:
    """Bytes of memory that can be used without swapping, from the text of /proc/meminfo."""
    for line in meminfo.splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise LabError("/proc/meminfo does not tell MemAvailable")


def _disk(path: Path, needed: int) -> str:
    while not path.exists():
        path = path.parent
    free = shutil.disk_usage(path).free
    return "" if free >= needed else f"{_gib(free)} free at {path}, {_gib(needed)} needed"


def _gib(size: int) -> str:
    return f"{size / GIB:.1f} GiB"


def install_packages() -> None:
    """Install what of PACKAGES is missing."""
    missing = [package for tool, package in PACKAGES.items() if not has_command(tool)]
    if missing:
        apt_install(missing)


def has_command(tool: str) -> bool:
    """Whether a command exists, by name (root's PATH) or by path."""
    return shutil.which(tool, path=f"{os.environ.get('PATH', '')}:/usr/local/sbin:/usr/sbin:/sbin") is not None


def apt_install(packages: Iterable[str]) -> None:
    """Install Debian packages on this machine; the package lists are fetched first if they are missing or too old."""
    names = sorted(set(packages))
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "install", "-qq", "--yes", "--no-install-recommends", *names]
    with progress.step(f"Installing Debian packages: {' '.join(names)}"):
        if command.run(install, timeout=900, env=env, check=False).returncode != 0:
            command.run(["apt-get", "update", "-qq"], timeout=300, env=env)
            command.run(install, timeout=900, env=env)


def debian_mirror(sources: Sequence[Path] | None = None) -> str:
    """URI of the Debian mirror that this machine uses, from its apt sources. Raises LabError if none is there."""
    files = _source_files() if sources is None else sources
    for file in files:
        text = file.read_text(encoding="utf-8", errors="replace")
        uris = _deb822_uris(text) if file.suffix == ".sources" else _one_line_uris(text)
        for uri in uris:
            return uri
    raise LabError("No Debian mirror (component main, not security) in /etc/apt/sources.list or sources.list.d")


def _source_files() -> list[Path]:
    apt = Path("/etc/apt")
    listed = sorted([*apt.glob("sources.list.d/*.sources"), *apt.glob("sources.list.d/*.list")])
    return [file for file in [*listed, apt / "sources.list"] if file.is_file()]


def _deb822_uris(text: str) -> list[str]:
    uris = []
    for stanza in text.split("\n\n"):
        lines = [line for line in stanza.splitlines() if not line.startswith("#")]
        fields = {key.strip().lower(): value.split() for key, _, value in (line.partition(":") for line in lines)}
        if fields.get("enabled") == ["no"] or "deb" not in fields.get("types", []):
            continue
        if _is_debian(fields.get("uris", []), fields.get("suites", []), fields.get("components", [])):
            uris.append(fields["uris"][0])
    return uris


def _one_line_uris(text: str) -> list[str]:
    uris = []
    for line in text.splitlines():
        words = line.split("]", 1)[-1].split() if "[" in line else line.split()[1:]
        if line.startswith("deb ") and len(words) >= 3 and _is_debian(words[:1], words[1:2], words[2:]):
            uris.append(words[0])
    return uris


def _is_debian(uris: Sequence[str], suites: Sequence[str], components: Sequence[str]) -> bool:
    """Debian's own archive, not its security updates nor somebody else's repository.

    Mirrors bear any name; what tells Debian's archive is the path that every mirror keeps, or its plain suite names.
    """
    if not uris or not suites or "main" not in components:
        return False
    plain = all("security" not in suite and "/" not in suite for suite in suites)
    return plain and uris[0].rstrip("/").endswith("/debian")
