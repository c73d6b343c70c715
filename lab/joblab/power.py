# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Power of the lab's hosts, as a power supply gives and takes it: the BMC and the faults use it."""

from __future__ import annotations

import enum
import time
from pathlib import Path

from . import podman, processes
from .errors import LabError
from .instance import Instance

_OFF_SECONDS = 20
#: A rebooting host is without processes for this long at most, before podman starts it again.
_BETWEEN_BOOTS_SECONDS = 3


class Power(enum.Enum):
    """State of a host's power, in Redfish's words."""

    ON = "On"
    OFF = "Off"


def power_state(instance: Instance, host: str) -> Power:
    """Whether the host has power (while it reboots it has). Raises LabError if there is no such host."""
    return Power.OFF if _switched_off(instance, host).exists() else Power.ON


def power_off(instance: Instance, host: str) -> None:
    """Take the power away at once: every process dies, also a frozen one; the disk keeps what was written.

    Returns when the host is dead, and it stays so until power_on. Off already: nothing happens.
    """
    group = podman.group(instance, host)
    switched_off = _switched_off(instance, host)
    if switched_off.exists() and not processes.pids(group):
        return
    switched_off.parent.mkdir(exist_ok=True)
    begun = time.monotonic()
    while not _kill(instance, host):
        # podman refuses while the host is between two boots, and would start it: the next round finds the new boot.
        if not processes.pids(group) and time.monotonic() - begun > _BETWEEN_BOOTS_SECONDS:
            break  # it was off
        _check_deadline(host, begun, "it cannot be killed")
        time.sleep(0.05)
    while processes.pids(group) or podman.status(instance, host) == "running":
        _check_deadline(host, begun, f"processes {processes.pids(group)} are left")
        time.sleep(0.05)
    switched_off.touch()


def power_on(instance: Instance, host: str) -> None:
    """Give power: the host boots. Returns when its first process runs. On already: nothing happens."""
    thaw(instance, host)
    podman.run(instance, ["start", instance.container(host)], timeout=60)
    _switched_off(instance, host).unlink(missing_ok=True)


def freeze(instance: Instance, host: str) -> None:
    """Stop every process of a host where it stands. The kernel still accepts connections; nothing answers them."""
    _freezer(instance, host).write_text("1", encoding="ascii")


def thaw(instance: Instance, host: str) -> None:
    """Let a frozen host go on. Not frozen, or off: nothing happens."""
    freezer = _freezer(instance, host)
    if freezer.exists():
        freezer.write_text("0", encoding="ascii")


def frozen(instance: Instance, host: str) -> bool:
    """Whether the host was frozen and not thawed."""
    freezer = _freezer(instance, host)
    return freezer.exists() and freezer.read_text(encoding="ascii").strip() == "1"


def _kill(instance: Instance, host: str) -> bool:
    """SIGKILL to the host's first process, by podman: only then podman does not start the host again."""
    argv = ["kill", "--signal=KILL", instance.container(host)]
    return podman.run(instance, argv, timeout=20, check=False).returncode == 0


def _check_deadline(host: str, begun: float, problem: str) -> None:
    if time.monotonic() - begun > _OFF_SECONDS:
        raise LabError(f"{host} does not go off: {problem}")


def _freezer(instance: Instance, host: str) -> Path:
    return podman.group(instance, host) / "cgroup.freeze"


def _switched_off(instance: Instance, host: str) -> Path:
    """A file that is there while the host has no power."""
    return instance.state / "power_off" / instance.known(host)
