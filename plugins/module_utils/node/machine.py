# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node as a machine: its identity, its boot, its daemons."""

from __future__ import annotations

import os
import re

from .answer import Refusal
from .command import run

UNITS = ("slurmd.service", "kubelet.service")
_PROPERTIES = "LoadState,ActiveState,SubState,MainPID"
_BOOT_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")
_MACHINE_ID = re.compile(r"[0-9a-f]{32}\Z")
_REBOOT_UNIT = "job-recovery-reboot"
_LOOK_DEADLINE = 5.0
_START_DEADLINE = 45.0


def probe(here) -> dict:
    """Who this node is, since when it runs, and whether its daemons do.

    Returns:
        `{"boot_id", "machine_id", "hostname", "uptime" (seconds), "smbios_uuid", "spool_dir", "units": {unit: {"load",
        "active", "sub", "main_pid"}}}`. What cannot be read is an empty text, and `units` is empty when systemd does
        not answer: a probe is an answer about the boot in any case.
    """
    configuration = here.configuration
    try:
        units = _units()
    except Refusal:
        units = {}
    return {
        "boot_id": boot_id(here.proc),
        "machine_id": machine_id(),
        "hostname": os.uname().nodename,
        "uptime": float(_read(here.proc + "/uptime").split(" ")[0] or 0),
        "smbios_uuid": _read(configuration.smbios_uuid_path).lower(),
        "spool_dir": configuration.spool_dir,
        "units": units,
    }


def boot_id(proc: str) -> str:
    """The kernel's boot ID, or the empty text."""
    return _matching(_BOOT_ID, _read(proc + "/sys/kernel/random/boot_id"))


def machine_id() -> str:
    """The installed system's ID (machine-id(5)), or the empty text."""
    return _matching(_MACHINE_ID, _read("/etc/machine-id"))


def restart(units: list, force: bool) -> dict:
    """Start the daemons that are not active; with `force` those that are active, too.

    Returns:
        `{"changed": [unit], "units": {unit: state}}`, states as in `probe`.

    Raises:
        Refusal: `absent` when the node has no such unit, `failed` when one is not active afterwards, `timed_out`.
    """
    before = _units(tuple(units))
    for unit in units:
        if before[unit]["load"] != "loaded":
            raise Refusal("absent", "%s is %s on this node" % (unit, before[unit]["load"]))
    dead = [unit for unit in units if force or before[unit]["active"] != "active"]
    if not dead:
        return {"changed": [], "units": before}
    run(["systemctl", "reset-failed", *dead], _LOOK_DEADLINE)  # else a start limit that was hit refuses the start
    ran = run(["systemctl", "restart" if force else "start", *dead], _START_DEADLINE)
    after = _units(tuple(units))
    for unit in dead:
        if after[unit]["active"] != "active":
            cause = (ran.output.strip().splitlines() or [""])[0]
            raise Refusal("failed", "%s is %s after its start: %s" % (unit, after[unit]["active"], cause))
    return {"changed": dead, "units": after}


def reboot(here, if_boot_id: str) -> dict:
    """Reboot, if this is still the boot that the caller means: compare and swap.

    The reboot is ordered from a timer of systemd's, so that this answer is out before sshd ends, and the timer's name
    makes a second order within one boot the same as the first.

    Returns:
        `{"rebooting": bool, "boot_id": the present one}`; false when it is another boot already.

    Raises:
        Refusal: `unreadable` without a boot ID of our own, `absent` without the site's reboot command, `failed` or
            `timed_out` when systemd does not take it.
    """
    present = boot_id(here.proc)
    if not present:
        raise Refusal("unreadable", "this node's boot ID cannot be read")
    if present != if_boot_id:
        return {"rebooting": False, "boot_id": present}
    command = here.configuration.reboot_command
    if command and not os.access(command, os.X_OK):
        raise Refusal("absent", "%s is no program on this node" % command)
    order = ["systemd-run", "--quiet", "--collect", "--unit=" + _REBOOT_UNIT, "--on-active=300ms"]
    words = [command] if command else ["systemctl", "reboot"]
    ran = run([*order, "--timer-property=AccuracySec=10ms", *words], _LOOK_DEADLINE)
    if ran.rc != 0 and not _already_ordered():
        raise Refusal("failed", "systemd does not take the reboot: %s" % ran.output.strip()[:300])
    return {"rebooting": True, "boot_id": present}


def _already_ordered() -> bool:
    running = run(["systemctl", "is-system-running"], _LOOK_DEADLINE).output.strip()
    ordered = run(["systemctl", "is-active", _REBOOT_UNIT + ".timer", _REBOOT_UNIT + ".service"], _LOOK_DEADLINE)
    return running == "stopping" or bool({"active", "activating"} & set(ordered.output.split()))


def _units(names: tuple = UNITS) -> dict:
    ran = run(["systemctl", "show", "--property=" + _PROPERTIES, *names], _LOOK_DEADLINE)
    if ran.rc != 0:
        raise Refusal("failed", "systemd does not answer: %s" % ran.output.strip()[:300])
    found = {}
    for name, block in zip(names, ran.output.strip().split("\n\n")):
        values = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        pid = values.get("MainPID", "0")
        found[name] = {
            "load": values.get("LoadState", "unknown"),
            "active": values.get("ActiveState", "unknown"),
            "sub": values.get("SubState", "unknown"),
            "main_pid": int(pid) if pid.isdigit() else 0,
        }
    if len(found) != len(names):
        raise Refusal("unreadable", "systemd describes %d of %d units" % (len(found), len(names)))
    return found


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as handle:
            return handle.read(4096).strip()
    except OSError:
        return ""


def _matching(pattern, text: str) -> str:
    return text if pattern.match(text) else ""
