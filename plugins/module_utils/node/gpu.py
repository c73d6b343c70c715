# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node's NVIDIA GPUs as nvidia-smi and the driver's /proc tell them: their state, and who has them open.

`nvidia-smi -q -x` is asked, because it tells what it knows and leaves out what it does not: in a `--query-gpu` one
field that an older driver does not know spoils the whole answer (exit code 2).
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple, Optional
from xml.etree import ElementTree

from .answer import Refusal
from .command import run

# States of a GPU, or of all where nvidia-smi itself is the matter.
ANSWERS = "answers"
LOST = "lost"  # the driver has it no more: fallen off the bus
SILENT = "silent"  # nvidia-smi does not end
ABSENT = "absent"  # there is no nvidia-smi
UNKNOWN = "unknown"

SMI = "nvidia-smi"
LOOK_DEADLINE = 10.0  # without persistence mode the driver wakes the GPUs up first
_KEEP = 2 * 1024 * 1024  # bytes of XML; a GPU takes about 20 KiB
_ADDRESS = re.compile(r"(?:PCI:)?([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})(?:\.[0-9a-f])?\Z", re.IGNORECASE)
_DEVICE_FILE = re.compile(r"/dev/nvidia([0-9]{1,4})\Z")
_MINOR = re.compile(r"^Device Minor:\s*([0-9]{1,4})\s*$", re.MULTILINE)
_LISTED = 20  # processes named in an answer

# Exit codes of nvidia-smi (its manual): 6 no such GPU, 12 no NVML library, 15 fallen off the bus.
_STATES = {6: LOST, 12: ABSENT, 15: LOST}
_GONE = ("GPU is lost", "Unable to determine the device handle", "fallen off the bus")


class Gpu(NamedTuple):
    """One GPU. What nvidia-smi does not tell of it is None, or an empty text."""

    device: str
    state: str
    recovery: str = ""  # None, Reset, Reboot, Drain P2P, Drain and Reset ... as the driver words it
    pending: Optional[bool] = None  # a page is to be retired or a row remapped at the next reset
    remap_failed: Optional[bool] = None
    persistence: Optional[bool] = None


def address(text: str) -> str:
    """A PCI address in one form, `0000:05:00`: four digits of domain, no function. Empty for what is no address."""
    found = _ADDRESS.match(text.strip())
    if not found:
        return ""
    domain, bus, device = (part.lower() for part in found.groups())
    return "%04x:%s:%s" % (int(domain, 16), bus, device)


def of_word(word: str) -> str:
    """The address of a word of the command line, which knows no colon (`0000-05-00`)."""
    return address(word.replace("-", ":"))


def look(here, devices: list) -> dict:
    """The GPUs' state.

    Args:
        devices: addresses; empty for all.

    Returns:
        `{"state", "trouble", "gpus": [{"device", "state", "recovery", "pending", "remap_failed", "persistence"}],
        "users": [{"pid", "name"}]}`; `state` is that of nvidia-smi, or of the worst of several GPUs. Each device
        that was asked for has its entry, whatever became of it. `users` have one of the GPUs open.
    """
    state, trouble, found = _ask(devices)
    if devices:
        by_device = {gpu.device: gpu for gpu in found}
        if state == ANSWERS and not set(devices) <= set(by_device):
            state = LOST
        found = [by_device.get(device, Gpu(device, state)) for device in devices]
    return {
        "state": state,
        "trouble": trouble,
        "gpus": [gpu._asdict() for gpu in found],
        "users": users(here.proc, devices)[:_LISTED],
    }


def _ask(devices: list) -> tuple:
    """State, what nvidia-smi says against it, and the GPUs that answer."""
    chosen = ["-i", ",".join(devices)] if devices else []
    try:
        ran = run([SMI, "-q", "-x", *chosen], LOOK_DEADLINE, _KEEP)
    except Refusal as refusal:
        return (ABSENT if refusal.kind == "absent" else SILENT), str(refusal), []
    if ran.rc == 0:
        try:
            found = parse(ran.output)
        except ElementTree.ParseError:
            return UNKNOWN, "nvidia-smi does not answer in XML", []
        return (ANSWERS, "", found) if found else (LOST, "nvidia-smi finds no GPU", [])
    said = " ".join(ran.output.split())[-300:]
    lost = any(text in ran.output for text in _GONE)
    return (LOST if lost else _STATES.get(ran.rc, UNKNOWN)), "nvidia-smi: rc %d: %s" % (ran.rc, said), []


def parse(text: str) -> list:
    """The GPUs in the output of `nvidia-smi -q -x`. What stands before the XML (a warning of one GPU) is left out."""
    root = ElementTree.fromstring(text[max(0, text.find("<nvidia_smi_log")) :])  # noqa: S314 (the node's own driver)
    return [gpu for gpu in map(_gpu, root.iter("gpu")) if gpu.device]


def _gpu(element) -> Gpu:
    def yes(*paths: str) -> Optional[bool]:
        told = [_YES_NO.get((element.findtext(path) or "").strip()) for path in paths]
        known = [value for value in told if value is not None]
        return any(known) if known else None

    recovery = (element.findtext("gpu_recovery_action") or "").strip()
    return Gpu(
        device=address(element.get("id") or ""),
        state=ANSWERS,
        recovery="" if recovery.startswith(("N/A", "[N/A", "[Not", "Not")) else recovery[:32],
        pending=yes(
            "remapped_rows/remapped_row_pending",
            "retired_pages/pending_retirement",
            "retired_pages/pending_blacklist",
        ),
        remap_failed=yes("remapped_rows/remapped_row_failure"),
        persistence=yes("persistence_mode"),
    )


_YES_NO = {"Yes": True, "No": False, "Enabled": True, "Disabled": False}


def known(proc: str) -> dict:
    """By address the number of its device file, of all GPUs that the driver has."""
    root = proc + "/driver/nvidia/gpus"
    found = {}
    try:
        names = os.listdir(root)
    except OSError:
        return found
    for name in names:
        minor = _MINOR.search(_read("%s/%s/information" % (root, name)))
        if address(name) and minor:
            found[address(name)] = int(minor.group(1))
    return found


def users(proc: str, devices: list) -> list:
    """Processes that have one of these GPUs open, as `{"pid", "name"}`; of any GPU where none is named, or where the
    driver does not say which device file is whose."""
    minors = known(proc)
    wanted = {minors[device] for device in devices} if devices and set(devices) <= set(minors) else None
    return [
        {"pid": int(entry), "name": _read("%s/%s/comm" % (proc, entry)).strip()[:32]}
        for entry in sorted(filter(str.isdigit, os.listdir(proc)), key=int)
        if int(entry) != os.getpid() and _has_open("%s/%s/fd" % (proc, entry), wanted)
    ]


def _has_open(folder: str, minors: Optional[set]) -> bool:
    try:
        names = os.listdir(folder)
    except OSError:  # it has ended
        return False
    for name in names:
        try:
            target = _DEVICE_FILE.match(os.readlink("%s/%s" % (folder, name)))
        except OSError:
            continue
        if target and (minors is None or int(target.group(1)) in minors):
            return True
    return False


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as handle:
            return handle.read(65536)
    except OSError:
        return ""
