# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The processes of an instance on this machine: found by their cgroup, never by number or name.

Everything that an instance starts outside its containers, and the containers themselves, runs below one cgroup
(``jrlab-N`` in the cgroup2 hierarchy). It tells what is still alive after a crash, is the claim of an instance between
checkouts (a cgroup is made once), and ends all of it in one write, without touching anybody else's process:

    jrlab-N/holder      keeps the private mount namespace
    jrlab-N/podman      podman's monitors, one a container, and podman at work
    jrlab-N/libpod-ID   a container
    jrlab-N/daemon-X    a service outside the containers, such as the BMC

The mount namespace has its own /run and /dev/shm (podman's state, locks, network namespaces, all in memory) and a pure
cgroup2 at /sys/fs/cgroup. It lives as long as one process in it; when all are dead, nothing is left to be stale.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from . import command, host
from .errors import LabError
from .instance import Instance

#: cgroups whose processes live in the mount namespace.
_WATCHERS = ("holder", "podman")
_READY = "run/jrlab-ready"
_KILL_SECONDS = 10

_JOIN_SCRIPT = 'echo $$ > "$1/cgroup.procs" && shift && exec "$@"'

_NAMESPACE_SCRIPT = """
set -e
echo $$ > "$1/cgroup.procs"
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -m 1777 /run/lock
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
if [ "$(stat -f -c %T /sys/fs/cgroup)" != cgroup2fs ]; then
    umount -R /sys/fs/cgroup
    mount -t cgroup2 cgroup2 /sys/fs/cgroup
fi
# podman's network tool would switch on forwarding for the whole machine; the lab's bridge does not need it.
echo 1 > /run/ip_forward
mount --bind /run/ip_forward /proc/sys/net/ipv4/ip_forward
touch /run/jrlab-ready
exec sleep infinity
"""


def cgroup(instance: Instance) -> Path:
    """Folder of the instance's cgroup (it may not exist)."""
    mount = host.cgroup2_mount()
    if mount is None:
        raise LabError("No cgroup2 hierarchy is mounted on this machine")
    return mount / instance.name


def pids(group: Path) -> list[int]:
    """Processes in one cgroup and in those below it."""
    found: list[int] = []
    for folder, _, _ in os.walk(group):
        try:
            found += map(int, (Path(folder) / "cgroup.procs").read_text(encoding="ascii").split())
        except OSError:  # the cgroup went away meanwhile
            continue
    return found


def owner(instance: Instance) -> Path | None:
    """State folder of whoever has this instance up on this machine: ours, another checkout's, or nobody's."""
    for group in _WATCHERS:
        for pid in pids(cgroup(instance) / group):
            if state := _state_of(pid, instance):
                return state
    return None


def _state_of(pid: int, instance: Instance) -> Path | None:
    """The state folder that a process of the lab works for: its working directory, or a path among its arguments."""
    try:
        directory = Path(os.readlink(f"/proc/{pid}/cwd"))
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return None
    tail = Path(".lab") / str(instance.number)
    for path in (directory, *map(Path, arguments)):
        for candidate in (path, *path.parents):
            if candidate.is_absolute() and candidate.parts[-2:] == tail.parts:
                return candidate
    return None


def check_owner(instance: Instance) -> None:
    """Raises LabError if another checkout has this instance up."""
    state = owner(instance)
    if state is not None and state != instance.state:
        raise LabError(
            f"Lab instance {instance.number} is up from another checkout: {state.parents[1]}\n"
            f"Bring it down there (lab/down), or use another number here: LAB_INSTANCE=1 lab/up"
        )


def namespace_pid(instance: Instance) -> int | None:
    """A living process in the instance's mount namespace, or none."""
    for group in _WATCHERS:
        for pid in pids(cgroup(instance) / group):
            if Path(f"/proc/{pid}/root/{_READY}").exists():
                return pid
    return None


def open_namespace(instance: Instance) -> None:
    """Make the instance's cgroup and mount namespace, unless they are there and alive."""
    holder = cgroup(instance) / "holder"
    if any(Path(f"/proc/{pid}/root/{_READY}").exists() for pid in pids(holder)):
        return
    holder.mkdir(parents=True, exist_ok=True)
    instance.state.mkdir(parents=True, exist_ok=True)
    alive = namespace_pid(instance)
    if alive:  # only the holder died: the namespace still lives in the monitors
        script = 'echo $$ > "$1/cgroup.procs" && exec nsenter --mount="/proc/$2/ns/mnt" sleep infinity'
        argv = ["sh", "-c", script, "sh", str(holder), str(alive)]
    else:
        argv = ["unshare", "--mount", "--propagation", "private", "sh", "-c", _NAMESPACE_SCRIPT, "sh", str(holder)]
    process = _spawn(argv, cwd=instance.state, log=instance.log / "namespace.log")

    def ready() -> bool:
        if process.poll() is not None:
            text = (instance.log / "namespace.log").read_text(encoding="utf-8", errors="replace")
            raise LabError(f"The lab's mount namespace could not be made:\n{text[-1000:]}")
        return namespace_pid(instance) is not None

    command.wait_for("the lab's mount namespace", ready, timeout=10, interval=0.02)


def in_namespace(instance: Instance, argv: Sequence[str]) -> list[str]:
    """The command line that runs podman (``argv``) in the instance's mount namespace and cgroup.

    Raises LabError if the lab is not up.
    """
    pid = namespace_pid(instance)
    if pid is None:
        raise LabError(f"Lab instance {instance.number} is not up (lab/up brings it up)")
    group = cgroup(instance) / "podman"
    group.mkdir(exist_ok=True)
    nsenter = ["nsenter", f"--mount=/proc/{pid}/ns/mnt", "--wd=/"]
    return ["sh", "-c", _JOIN_SCRIPT, "sh", str(group), *nsenter, *argv]


def start_daemon(
    instance: Instance, name: str, argv: Sequence[str], *, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> None:
    """Start a service outside the containers; its output goes to log/NAME.log. Nothing happens if it runs."""
    if daemon_runs(instance, name):
        return
    group = _daemon_group(instance, name)
    group.mkdir(parents=True, exist_ok=True)
    argv = ["sh", "-c", _JOIN_SCRIPT, "sh", str(group), *argv]
    process = _spawn(argv, cwd=cwd or instance.state, log=instance.log / f"{name}.log", env=env)
    command.wait_for(
        f"{name} starts", lambda: daemon_runs(instance, name) or process.poll() is not None, timeout=10, interval=0.01
    )


def daemon_runs(instance: Instance, name: str) -> bool:
    """Whether a service started by start_daemon has a living process."""
    return bool(pids(_daemon_group(instance, name)))


def stop_daemon(instance: Instance, name: str) -> None:
    """End a service started by start_daemon, and what it started. Nothing happens if it does not run."""
    kill_group(_daemon_group(instance, name))


def _daemon_group(instance: Instance, name: str) -> Path:
    return cgroup(instance) / f"daemon-{name}"


def _spawn(
    argv: Sequence[str], *, cwd: Path, log: Path, env: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        return subprocess.Popen(
            list(argv), cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )


def kill_group(group: Path) -> None:
    """Kill every process in a cgroup and below, frozen ones too, and remove it. Raises LabError if one stays."""
    if not group.exists():
        return
    deadline = time.monotonic() + _KILL_SECONDS
    while pids(group):
        (group / "cgroup.kill").write_text("1", encoding="ascii")
        if time.monotonic() > deadline:
            raise LabError(f"Processes of {group} do not die: {pids(group)}")
        time.sleep(0.02)
    for folder, _, _ in os.walk(group, topdown=False):
        _remove_group(Path(folder), deadline)


def _remove_group(folder: Path, deadline: float) -> None:
    """Remove an empty cgroup; the kernel may take a moment to let the last process go."""
    while folder.exists():
        try:
            folder.rmdir()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
