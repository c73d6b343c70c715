# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What nodes told of themselves: can each be reached, as root, does it tell which boot this is, and is its clock right.

The looks are taken by one `raw` command a node, which the role preflight holds; this reads and judges what they print,
and hands on what other checks judge: numbers, identities, free space.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Callable, Mapping, Optional, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks import space
from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks.hosts import grouped
from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks.model import (
    FAILED,
    PASSED,
    UNKNOWN,
    WARNING,
    Check,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import BadInput
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.reading import printable

SPEC: dict[str, Any] = {
    "argument_spec": {
        "names": {"type": "list", "elements": "str", "required": True},
        "results": {"type": "list", "elements": "dict", "required": True},
        "heads": {"type": "list", "elements": "str", "default": []},
        "compute": {"type": "list", "elements": "str", "default": []},
        "oldest_python": {"type": "str", "default": "3.9"},
        "max_clock_seconds": {"type": "int", "default": 10},
        "storage_path": {"type": "str", "default": "/var/lib"},
        "back_ends": {"type": "list", "elements": "dict", "default": []},
    },
    "supports_check_mode": True,
}

_LONGEST = 4000  # characters of one answer; a probe of the helper is the longest
_BOOT_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")
_MACHINE_ID = re.compile(r"[0-9a-f]{32}\Z")
_NAMES = ("slurm_name", "kubernetes_name", "ssh_address", "bmc_url")
_TOLD = (*_NAMES, "hostname", "machine_id", "boot_id", "smbios_uuid")
# What Ansible, ssh and sudo say when a node cannot be looked at; the first that occurs is the reason.
_REASONS = (
    ("Host key verification failed", "its host key is not known"),
    ("HOST IDENTIFICATION HAS CHANGED", "its host key is another one"),
    ("Permission denied", "SSH: permission denied"),
    ("Connection refused", "SSH: connection refused"),
    ("No route to host", "no route to it"),
    ("Network is unreachable", "no route to it"),
    ("Could not resolve hostname", "its name cannot be resolved"),
    ("Name or service not known", "its name cannot be resolved"),
    ("Connection timed out", "no answer in time"),
    ("timed out", "no answer in time"),
    ("Connection closed", "SSH: connection closed"),
    ("sudo", "become: sudo wants a password or refuses"),
    ("become", "become does not work"),
)


@dataclass(frozen=True)
class Look:
    """What one node told, or why it told nothing. `mounts` are its file systems."""

    told: Mapping[str, str]
    trouble: str = ""
    mounts: Sequence[space.Mount] = ()

    def number(self, name: str) -> Optional[int]:
        """A number that it told, None for anything else."""
        text = self.told.get(name, "")
        return int(text) if text.isascii() and text.isdigit() else None


def run(params: dict[str, Any], check_mode: bool) -> dict[str, Any]:
    """Judge the results of the `raw` commands.

    Returns:
        `changed` (false), `checks`, `machines` as `hardware_check` takes them, `nodes` as `identity_check` takes them,
        `storage_gb` (the least that a head node has free, or null), `back_ends` with what each has free,
        `slurm_names` (of the nodes that answered) and `addresses` (of the head nodes).

    Raises:
        BadInput: names and results differ in number.
    """
    del check_mode  # nothing is ever changed
    if len(params["names"]) != len(params["results"]):
        raise BadInput("%d names, but %d results" % (len(params["names"]), len(params["results"])))
    looks = dict(zip(params["names"], map(look, params["results"])))
    nodes = {name: looks[name] for name in params["compute"] if name in looks}
    heads = {name: looks[name] for name in params["heads"] if name in looks}
    mounts = [space.over(one.mounts, params["storage_path"]) for one in heads.values()]
    known = [mount.free_kb for mount in mounts if mount is not None]
    checks = _heads(heads) + judge(looks, params["oldest_python"], params["max_clock_seconds"]) + _daemons(nodes)
    return {
        "changed": False,
        "checks": [check.as_dict() for check in checks],
        "machines": [machine(name, one, False) for name, one in nodes.items()]
        + [machine(name, one, True) for name, one in heads.items()],
        "nodes": [
            {"name": name, **{key: one.told.get(key, "") for key in _TOLD}}
            for name, one in nodes.items()
            if not one.trouble
        ],
        "slurm_names": [one.told["slurm_name"] for one in nodes.values() if one.told.get("slurm_name")],
        "addresses": sorted({word for one in heads.values() for word in one.told.get("addresses", "").split()}),
        "storage_gb": min(known) * space.KB if known and len(known) == len(mounts) else None,
        "back_ends": [_measured(end, nodes, heads) for end in params["back_ends"]],
    }


def machine(name: str, one: Look, head: bool) -> dict[str, Any]:
    """One machine as `hardware_check` takes it; a number that was not told is left out."""
    memory, sockets, cores = one.number("memory_kb"), one.number("sockets"), one.number("cores")
    numbers = {
        "memory_mb": None if memory is None else memory / 1024,
        "sockets": sockets,
        "cores_per_socket": cores // sockets if cores and sockets else None,
        "threads": one.number("threads"),
        "slurm_name": one.told.get("slurm_name"),
        "kubernetes_name": one.told.get("kubernetes_name"),
    }
    return {"name": name, "head": head, **{key: value for key, value in numbers.items() if value is not None}}


def look(result: Mapping[str, Any]) -> Look:
    """What a node told, from the result of its `raw` command."""
    if result.get("unreachable") or "stdout" not in result or not str(result["stdout"]).strip():
        return Look({}, trouble(result))
    told, mounts = read(str(result["stdout"]))
    return Look(told, "" if told.get("uid") else trouble(result), mounts)


def trouble(result: Mapping[str, Any]) -> str:
    """Why a node could not be looked at, in words that are the same for the same cause."""
    said = " ".join(str(result.get(key, "")) for key in ("msg", "stderr", "module_stderr"))
    return next((reason for text, reason in _REASONS if text in said), "it gives no answer")


def read(output: str) -> tuple[dict[str, str], list[space.Mount]]:
    """`name=value` lines, and the file systems in those named `fs`; anything else is a banner's and left out.

    Values are a node's own words: they are cut and made printable.
    """
    told: dict[str, str] = {}
    mounts = []
    for line in output.splitlines():
        name, equals, value = line.strip().partition("=")
        if equals and name == "fs":
            mounts.extend(space.parse(value))
        elif equals:
            told[name] = printable(value.strip(), _LONGEST)
    return told, mounts


def judge(looks: Mapping[str, Look], oldest_python: str, max_clock_seconds: int) -> list[Check]:
    """One check for each question, over all nodes. A node that was not reached stands in the first one only."""
    lost = {name: one.trouble for name, one in looks.items() if one.trouble}
    reached = {name: one for name, one in looks.items() if not one.trouble}
    found = _count(len(reached), len(looks), lost)
    hint = "bring them up, correct ansible_host or the keys, or take them out of the inventory" if lost else ""
    checks = [
        Check("nodes_reachable", "Nodes answer", "every node answers by SSH", found, FAILED if lost else PASSED, hint)
    ]
    for check_id, title, required, good, shown, advice in _RULES:
        bad = {
            name: one.told.get(shown) or "none"
            for name, one in reached.items()
            if not good(one.told.get(shown, ""), oldest_python)
        }
        found = _count(len(reached) - len(bad), len(reached), bad)
        required = required.replace("OLDEST", oldest_python)
        checks.append(Check(check_id, title, required, found, FAILED if bad else PASSED, advice if bad else ""))
    return [*checks, _clocks(reached, max_clock_seconds)]


def _heads(heads: Mapping[str, Look]) -> list[Check]:
    """Slurm, the BMCs and the database are asked from the head node: where it is lost, that goes before all else."""
    if not heads:
        return []
    lost = {name: one.trouble for name, one in heads.items() if one.trouble}
    found = _count(len(heads) - len(lost), len(heads), lost)
    hint = "bring it up, or correct its ansible_host and keys: the rest cannot be told before" if lost else ""
    title, required = "The head node answers", "it answers by SSH, and lets us work as root"
    return [Check("head_reachable", title, required, found, FAILED if lost else PASSED, hint)]


def _clocks(reached: Mapping[str, Look], limit: int) -> Check:
    """A node's clock against that of the machine that asked it; what is ahead may be a login that took as long."""
    title, required = "Clocks agree", "no clock is more than %d s off" % limit
    pairs = {name: (one.number("clock"), one.number("asked")) for name, one in reached.items()}
    offsets = {name: clock - asked for name, (clock, asked) in pairs.items() if clock is not None and asked is not None}
    wrong = {
        name: "its clock is %d s %s" % (abs(seconds), "ahead, or its login took so long" if seconds > 0 else "behind")
        for name, seconds in offsets.items()
        if abs(seconds) > limit
    }
    if not offsets:
        return Check("nodes_clock", title, required, "no node told its time", UNKNOWN, "run `date +%s` on a node")
    found = "%d s behind to %d s ahead on %d nodes" % (
        max(0, -min(offsets.values())),
        max(0, *offsets.values()),
        len(offsets),
    )
    if wrong:
        hint = "let chrony or systemd-timesyncd run on them: munge and TLS refuse clocks that are off"
        return Check("nodes_clock", title, required, "%s; %s" % (found, grouped(wrong)), FAILED, hint)
    return Check("nodes_clock", title, required, found, PASSED)


def _daemons(nodes: Mapping[str, Look]) -> list[Check]:
    """slurmd and the kubelet start at boot, where the node belongs to Slurm and to Kubernetes."""
    checks = []
    for daemon, name in (("slurmd", "slurm_name"), ("kubelet", "kubernetes_name")):
        mine = {host: one.told for host, one in nodes.items() if one.told.get(name) and not one.trouble}
        states = {host: told.get(daemon + "_enabled", "") for host, told in mine.items()}
        off = {host: state for host, state in states.items() if state in ("disabled", "masked", "masked-runtime")}
        other = {host: state or "no such service" for host, state in states.items() if state not in _STARTS | set(off)}
        if not mine:
            continue
        good = len(mine) - len(off) - len(other)
        found = _count(good, len(mine), {**off, **other})
        status = FAILED if off else WARNING if other else PASSED
        hint = (
            "run `systemctl enable %s` on them, or in their image; where something else starts it at boot, such as "
            "CMDaemon, accept nodes_%s_enabled" % (daemon, daemon)
        )
        if status == WARNING:
            hint = "make sure that something starts %s there at boot, else no reboot ends" % daemon
        title, required = "%s starts at boot" % daemon, "%s is enabled on every node" % daemon
        checks.append(
            Check("nodes_%s_enabled" % daemon, title, required, found, status, "" if status == PASSED else hint)
        )
    return checks


# `systemctl is-enabled`: started at boot by systemd itself, by a generator, or as part of another unit.
_STARTS = {"enabled", "enabled-runtime", "static", "generated", "alias", "indirect", "linked"}


def _measured(end: Mapping[str, Any], nodes: Mapping[str, Look], heads: Mapping[str, Look]) -> dict[str, Any]:
    """A back end with `where` it is, in words, and what is `free` there, decimal gigabytes by host."""
    hosts = {
        name: space.Host(one.told.get("hostname", ""), one.told.get("addresses", "").split(), one.mounts)
        for name, one in {**heads, **nodes}.items()
    }
    where, free = space.measure(end, hosts, list(nodes))
    return {"class": end["class"], "default": bool(end.get("default")), "where": where, "free": free}


def _count(good: int, of: int, bad: Mapping[str, str]) -> str:
    return "%d of %d" % (good, of) + ("; %s" % grouped(bad) if bad else "")


def _is_root(value: str, _oldest: str) -> bool:
    return value == "0"


def _is_boot_id(value: str, _oldest: str) -> bool:
    return _BOOT_ID.match(value) is not None


def _is_machine_id(value: str, _oldest: str) -> bool:
    return _MACHINE_ID.match(value) is not None


def _is_new_enough(value: str, oldest: str) -> bool:
    numbers, wanted = ([int(number) for number in re.findall(r"\d+", text)[:2]] for text in (value, oldest))
    return len(numbers) == 2 and numbers >= wanted


_Rule = tuple[str, str, str, Callable[[str, str], bool], str, str]
_RULES: Sequence[_Rule] = (
    (
        "nodes_root",
        "Work as root on the nodes",
        "become gives root on every node",
        _is_root,
        "uid",
        "allow ansible_user to become root there (ansible_become)",
    ),
    (
        "nodes_boot_id",
        "Nodes tell their boot",
        "every node shows its kernel's boot ID",
        _is_boot_id,
        "boot_id",
        "mount /proc on them as usual",
    ),
    (
        "nodes_machine_id",
        "Nodes tell who they are",
        "every node has a machine-id",
        _is_machine_id,
        "machine_id",
        "run `systemd-machine-id-setup` there; images must not share one",
    ),
    (
        "nodes_python",
        "Python on the nodes",
        "/usr/bin/python3 of OLDEST or newer",
        _is_new_enough,
        "python",
        "install Python 3 there: the node helper needs it",
    ),
)
