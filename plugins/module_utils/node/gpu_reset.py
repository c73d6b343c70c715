# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reset GPUs: stop what has them open, `nvidia-smi --gpu-reset`, start again what was running.

Three requests of the controller belong together by one name. What was running, and that the reset was begun, stands in
a record on this node before anything is done: a request that is repeated, because its answer was lost or the
controller was killed, stops nothing anew, never resets twice, and starts exactly what ran before. The record ends with
the boot, as everything that it is about does.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from typing import Iterator

from . import gpu
from .answer import Refusal
from .command import run

# answers of `reset`
DONE = "done"
FAILED = "failed"
RUNNING = "running"  # an earlier request still is at it
BUSY = "busy"  # somebody has the GPUs open; nothing was begun

_RESET_DEADLINE = 240.0
_STOP_DEADLINE = 60.0
_START_DEADLINE = 120.0
_LOOK_DEADLINE = 5.0
_MODE_DEADLINE = 20.0
# Exit code 3 of nvidia-smi (its manual): the operation is not available on this GPU.
_NOT_AVAILABLE = 3
_IN_USE = ("In use by another client", "currently being used", "currently in use")


def stop(here, name: str) -> dict:
    """Stop the services that have GPUs open, and persistence mode, which counts as one that does.

    Which services these are says the node's own configuration, `gpu_clients`. Only those that are active are stopped.

    Returns:
        `{"state": done or running, "services": [unit], "persistence": [device], "users": [...]}`; `users` are left.

    Raises:
        Refusal: a service does not stop, or the record cannot be kept.
    """
    with _turn(here, name) as record:
        if record is None:
            return {"state": RUNNING, "services": [], "persistence": [], "users": []}
        if "services" not in record:
            record["services"] = _active(here.configuration.gpu_clients)
            told = gpu.look(here, [])
            record["persistence"] = [each["device"] for each in told["gpus"] if each["persistence"]]
            _write(here, name, record)
        if record["services"]:
            ran = run(["systemctl", "stop", *record["services"]], _STOP_DEADLINE)
            left = _active(record["services"])
            if left:
                raise Refusal("failed", "%s does not stop: %s" % (left[0], ran.output.strip()[-300:]))
        _persistence(record["persistence"], "0")
        return {
            "state": DONE,
            "services": record["services"],
            "persistence": record["persistence"],
            "users": gpu.users(here.proc, []),
        }


def reset(here, name: str, devices: list) -> dict:
    """Reset these GPUs (all, where none is named), once.

    GPUs that NVLink ties together must be reset in one command, unless they are of Ampere or newer and Fabric Manager
    runs (manual of nvidia-smi, --gpu-reset); nvidia-smi refuses then. So where GPUs were named and it refuses, all of
    them are reset, if nobody has any of them open: the node does nothing else.

    Returns:
        `{"state": done, failed, running or busy, "why", "devices": [address] (empty: all), "users": [...]}`.
    """
    with _turn(here, name) as record:
        if record is None:
            return _told(RUNNING, "an earlier request is resetting them", devices, [])
        if "result" in record:
            return record["result"]
        if "begun" in record:
            return _told(FAILED, "an earlier reset was interrupted, and what became of it is not known", devices, [])
        users = gpu.users(here.proc, devices)
        if users:
            return _told(BUSY, "processes have them open", devices, users)
        record["begun"] = devices
        _write(here, name, record)
        record["result"] = _reset(here, devices)
        _write(here, name, record)
        return record["result"]


def start(here, name: str) -> dict:
    """Start what `stop` stopped; a name under which nothing was stopped starts nothing.

    Returns:
        `{"state": done or running, "services": [unit], "persistence": [device]}`, those that were started.

    Raises:
        Refusal: a service does not start.
    """
    with _turn(here, name) as record:
        if record is None:
            return {"state": RUNNING, "services": [], "persistence": []}
        services, persistence = record.get("services", []), record.get("persistence", [])
        if services:
            run(["systemctl", "reset-failed", *services], _LOOK_DEADLINE)
            ran = run(["systemctl", "start", *services], _START_DEADLINE)
            dead = sorted(set(services).difference(_active(services)))
            if dead:
                raise Refusal("failed", "%s does not start: %s" % (dead[0], ran.output.strip()[-300:]))
        _persistence(persistence, "1")
        return {"state": DONE, "services": services, "persistence": persistence}


def _reset(here, devices: list) -> dict:
    state, why = _command(devices)
    others = set(gpu.known(here.proc)).difference(devices)
    if state == FAILED and devices and others and not gpu.users(here.proc, []):
        state, more = _command([])
        return _told(state, "%s; then all of them: %s" % (why, more) if more else why, [], [])
    return _told(state, why, devices, [])


def _command(devices: list) -> tuple:
    """Run it; state and, where it failed, why."""
    chosen = ["-i", ",".join(devices)] if devices else []
    try:
        ran = run([gpu.SMI, "--gpu-reset", *chosen], _RESET_DEADLINE)
    except Refusal as refusal:
        return FAILED, str(refusal)
    if ran.rc == 0:
        return DONE, ""
    said = " ".join(ran.output.split())[-300:]
    if ran.rc == _NOT_AVAILABLE:
        return FAILED, "these GPUs cannot be reset: %s" % said
    kind = "they are in use" if any(text in ran.output for text in _IN_USE) else "rc %d" % ran.rc
    return FAILED, "nvidia-smi --gpu-reset: %s: %s" % (kind, said)


def _told(state: str, why: str, devices: list, users: list) -> dict:
    return {"state": state, "why": why, "devices": devices, "users": users[:20]}


def _persistence(devices: list, mode: str) -> None:
    """Persistence mode of these GPUs, as far as nvidia-smi sets it: a GPU that is lost has none, and what refused to go
    off shows when the reset finds the GPU in use."""
    for device in devices:
        with contextlib.suppress(Refusal):
            run([gpu.SMI, "-pm", mode, "-i", device], _MODE_DEADLINE)


def _active(units: list) -> list:
    """Those that systemd says are active; one that it does not know is not."""
    if not units:
        return []
    told = run(["systemctl", "is-active", *units], _LOOK_DEADLINE).output.split()
    if len(told) != len(units):
        raise Refusal("failed", "systemd describes %d of %d units" % (len(told), len(units)))
    return [unit for unit, state in zip(units, told) if state in ("active", "activating", "reloading")]


@contextlib.contextmanager
def _turn(here, name: str) -> Iterator:
    """The record under this name, while nobody else has it; None while somebody has."""
    try:
        os.makedirs(here.state, mode=0o700, exist_ok=True)
        lock = os.open(_path(here, name) + ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as exc:
        raise Refusal("failed", "no record can be kept in %s: %s" % (here.state, exc.strerror)) from exc
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
            return
        yield _load(here, name)
    finally:
        os.close(lock)


def _load(here, name: str) -> dict:
    try:
        with open(_path(here, name), encoding="utf-8") as handle:
            return json.load(handle)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as exc:
        raise Refusal("unreadable", "the record %s cannot be read" % _path(here, name)) from exc


def _write(here, name: str, record: dict) -> None:
    fresh = _path(here, name) + ".new"
    try:
        with open(fresh, "w", encoding="utf-8") as handle:
            json.dump(record, handle)
        os.replace(fresh, _path(here, name))
    except OSError as exc:
        raise Refusal("failed", "%s cannot be written: %s" % (fresh, exc.strerror)) from exc


def _path(here, name: str) -> str:
    return "%s/gpu-reset-%s" % (here.state, name)
