# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Can every node be reached, as root, and does it tell which boot this is: without that nothing can be proved there.

The looks are taken by one `raw` command a node, which the role preflight holds; this reads and judges what they print,
and hands on the numbers that `hardware_check` judges.
"""

from __future__ import annotations

import re
from typing import Any, Callable, Mapping, Optional, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks.model import FAILED, PASSED, Check
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import BadInput

SPEC: dict[str, Any] = {
    "argument_spec": {
        "names": {"type": "list", "elements": "str", "required": True},
        "results": {"type": "list", "elements": "dict", "required": True},
        "heads": {"type": "list", "elements": "str", "default": []},
        "compute": {"type": "list", "elements": "str", "default": []},
        "oldest_python": {"type": "str", "default": "3.9"},
    },
    "supports_check_mode": True,
}

_BOOT_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")
_MACHINE_ID = re.compile(r"[0-9a-f]{32}\Z")


def run(params: dict[str, Any], check_mode: bool) -> dict[str, Any]:
    """Judge the results of the `raw` commands.

    Returns:
        `{"changed": false, "checks": [...], "machines": [...], "storage_gb": number or null}`; machines as
        `hardware_check` takes them, storage the least that a head node has free.

    Raises:
        BadInput: names and results differ in number.
    """
    del check_mode  # nothing is ever changed
    if len(params["names"]) != len(params["results"]):
        raise BadInput("%d names, but %d results" % (len(params["names"]), len(params["results"])))
    looks = dict(zip(params["names"], map(look, params["results"])))
    free = [_number(looks.get(name), "storage_kb") for name in params["heads"]]
    return {
        "changed": False,
        "checks": [check.as_dict() for check in judge(looks, params["oldest_python"])],
        "machines": [machine(name, looks.get(name), False) for name in params["compute"]]
        + [machine(name, looks.get(name), True) for name in params["heads"]],
        "storage_gb": None if None in free or not free else min(free) * 1024 / 1000**3,
    }


def machine(name: str, told: Optional[Mapping[str, str]], head: bool) -> dict[str, Any]:
    """One machine as `hardware_check` takes it; a number that was not told is left out."""
    memory, sockets = _number(told, "memory_kb"), _number(told, "sockets")
    cores, threads = _number(told, "cores"), _number(told, "threads")
    numbers = {
        "memory_mb": None if memory is None else memory / 1024,
        "sockets": sockets,
        "cores_per_socket": cores // sockets if cores and sockets else None,
        "threads": threads,
    }
    return {"name": name, "head": head, **{key: value for key, value in numbers.items() if value is not None}}


def _number(told: Optional[Mapping[str, str]], name: str) -> Optional[int]:
    text = (told or {}).get(name, "")
    return int(text) if text.isascii() and text.isdigit() else None


def look(result: Mapping[str, Any]) -> Optional[dict[str, str]]:
    """What a node told; None where the command did not run there."""
    if result.get("unreachable") or "stdout" not in result:
        return None
    return read(str(result["stdout"]))


def read(output: str) -> dict[str, str]:
    """`name=value` lines; anything else is a banner's and left out."""
    pairs = (line.strip().split("=", 1) for line in output.splitlines() if "=" in line)
    return {name: value.strip() for name, value in pairs}


def judge(looks: Mapping[str, Any], oldest_python: str) -> list[Check]:
    """Four checks, each over all nodes. A node that was not reached stands in the first one only."""
    reached = {name: look for name, look in looks.items() if look is not None}
    lost = sorted(set(looks) - set(reached))
    found = "%d of %d" % (len(reached), len(looks)) + (": not %s" % _some(lost) if lost else "")
    hint = "bring them up, correct ansible_host, or take them out of the inventory" if lost else ""
    checks = [
        Check("nodes_reachable", "Nodes answer", "every node answers by SSH", found, FAILED if lost else PASSED, hint)
    ]
    for number, title, required, good, shown, advice in _RULES:
        bad = sorted(name for name, look in reached.items() if not good(look.get(shown, ""), oldest_python))
        told = "%d of %d" % (len(reached) - len(bad), len(reached))
        if bad:
            told += ": not %s" % _some(["%s (%s)" % (name, reached[name].get(shown) or "none") for name in bad])
        required = required.replace("OLDEST", oldest_python)
        checks.append(Check(number, title, required, told, FAILED if bad else PASSED, advice if bad else ""))
    return checks


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


def _some(items: Sequence[str]) -> str:
    rest = len(items) - 5
    return ", ".join(items[:5]) + (" and %d more" % rest if rest > 0 else "")
