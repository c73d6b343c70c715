# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The root file system of every lab host: Debian packages, as they are.

What makes a lab host of them (lab/files/host) comes at a host's first boot, so that a change there costs no new image.
"""

from __future__ import annotations

import collections
import os
import subprocess
from pathlib import Path

from . import cache, command, host, progress
from .errors import LabError

SUITE = "trixie"
#: Name of the image inside the store.
NAME = "localhost/job-recovery-lab:trixie"
STORE = "store"

PACKAGES = {
    "a machine": (
        "systemd systemd-sysv dbus openssh-server sudo python3 python3-venv python3-pip "
        "iproute2 iputils-ping procps psmisc less curl jq openssl ca-certificates rsync"
    ),
    "Slurm": (
        "munge slurmd slurmctld slurm-client slurmdbd slurm-wlm-basic-plugins slurm-wlm-jwt-plugin "
        "slurm-wlm-mysql-plugin libpmix2t64 mariadb-server"
    ),
    "Kubernetes": "containerd runc containernetworking-plugins iptables nftables",
    "the registry": "docker-registry apache2-utils",
    "ansible-rulebook": "openjdk-21-jre-headless",
}
_LEFT_OUT = ("/usr/share/man/*", "/usr/share/doc/*", "/usr/share/locale/*")
#: Java's packages register alternatives for manual pages and fail where their folder is left out.
_ESSENTIAL_HOOK = '--essential-hook=mkdir -p "$1/usr/share/man/man1"'
_BUILD_SECONDS = 1200


def ensure() -> cache.Artifact:
    """The image, as a read-only store of podman's (folder ``store`` of the artifact); built if it is not cached."""
    material = {"suite": SUITE, "packages": PACKAGES, "left out": _LEFT_OUT, "name": NAME}
    return cache.ensure("image", material, _build, doing="Building the image of the hosts (2 to 4 minutes)")


def _build(folder: Path) -> None:
    tarball = folder / "rootfs.tar"
    _bootstrap(tarball)
    with progress.step("Importing the image into podman's store"):
        _import(tarball, folder / STORE)
    tarball.unlink()


def _bootstrap(tarball: Path) -> None:
    included = ",".join(name for names in PACKAGES.values() for name in names.split())
    argv = [
        "mmdebstrap",
        "--variant=minbase",
        f"--include={included}",
        *(f"--dpkgopt=path-exclude={pattern}" for pattern in _LEFT_OUT),
        '--aptopt=Acquire::Languages "none"',
        "--aptopt=Acquire::Retries 3",
        _ESSENTIAL_HOOK,
        SUITE,
        str(tarball),
        host.debian_mirror(),
    ]
    # In a mount namespace, and with its folder beside the result: a killed build leaves neither mounts nor files.
    argv = ["unshare", "--mount", "--propagation", "private", *argv]
    env = {**os.environ, "TMPDIR": str(tarball.parent)}
    tail: collections.deque[str] = collections.deque(maxlen=25)
    process = subprocess.Popen(
        argv, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        for line in process.stdout or ():
            tail.append(line)
            if line.startswith("I: "):
                progress.note(f"  {line[3:].strip()}")
        status = process.wait()
    finally:
        process.terminate()
    if status != 0:
        raise LabError("mmdebstrap failed:\n" + "".join(tail))


def _import(tarball: Path, store: Path) -> None:
    """Import in a mount namespace of its own: podman's state and locks on this machine are not touched."""
    script = 'mount -t tmpfs tmpfs /run && mount -t tmpfs tmpfs /dev/shm && exec "$@"'
    podman = ["podman", "--root", str(store), "--runroot", "/run/store", "--storage-driver", "overlay"]
    podman += ["--cgroup-manager", "cgroupfs", "--events-backend", "none"]
    argv = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh"]
    command.run([*argv, *podman, "import", "--quiet", str(tarball), NAME], timeout=_BUILD_SECONDS)
