# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The root file system of every lab host: Debian packages and the files under lab/files/image."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from . import cache, command, host, progress
from .errors import LabError
from .instance import checkout

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
_BUILD_SECONDS = 1200


def _files() -> Path:
    return checkout() / "lab" / "files" / "image"


def ensure() -> cache.Artifact:
    """The image, as a read-only store of podman's (folder ``store`` of the artifact); built if it is not cached."""
    material = {"suite": SUITE, "packages": PACKAGES, "left out": _LEFT_OUT, "files": _files(), "name": NAME}
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
        f'--customize-hook={_files() / "customize.sh"} "$1"',
        SUITE,
        str(tarball),
        host.debian_mirror(),
    ]
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for line in process.stdout or ():
            log.write(line)
            if line.startswith("I: "):
                progress.note(f"  {line[3:].strip()}")
        if process.wait() != 0:
            log.seek(0)
            raise LabError("mmdebstrap failed:\n" + "".join(log.readlines()[-25:]))


def _import(tarball: Path, store: Path) -> None:
    """Import in a mount namespace of its own, so that neither podman's state nor its locks on this machine are touched."""
    script = 'mount -t tmpfs tmpfs /run && mount -t tmpfs tmpfs /dev/shm && exec "$@"'
    podman = ["podman", "--root", str(store), "--runroot", "/run/store", "--storage-driver", "overlay"]
    podman += ["--cgroup-manager", "cgroupfs", "--events-backend", "none"]
    argv = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh"]
    command.run([*argv, *podman, "import", "--quiet", str(tarball), NAME], timeout=_BUILD_SECONDS)
