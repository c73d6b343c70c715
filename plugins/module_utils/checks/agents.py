# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module `agents_check`: is the node helper on every node, is it this collection's, and does it work.

The looks are taken by one `raw` command a node, which the role status holds; this reads and judges what they print.
Nodes that boot from a common image lose what was installed on them; here they are named.
"""

from __future__ import annotations

import hashlib
import os
from typing import Any, Mapping, Optional, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils import json_text
from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks.model import (
    FAILED,
    PASSED,
    WARNING,
    Check,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks.nodes import read
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import Absent, BadInput, Unreadable

SPEC: dict[str, Any] = {
    "argument_spec": {
        "names": {"type": "list", "elements": "str", "required": True},
        "results": {"type": "list", "elements": "dict", "required": True},
        "helper": {"type": "path", "required": True},
        "slurm": {"type": "list", "elements": "str", "default": []},
    },
    "supports_check_mode": True,
}

Looks = Mapping[str, Mapping[str, str]]

_AGAIN = "run site.yml; where nodes boot from an image, install the role node_agent into the image, too"
_SHOWN = 8


def run(params: dict[str, Any], _check_mode: bool) -> dict[str, Any]:
    """Judge the results of the `raw` commands.

    Returns:
        `{"changed": false, "checks": [...], "helper": digest of this collection's helper, "without": [names]}`

    Raises:
        BadInput: names and results differ in number. Absent, Unreadable: the helper on this machine.
    """
    if len(params["names"]) != len(params["results"]):
        raise BadInput("%d names, but %d results" % (len(params["names"]), len(params["results"])))
    looks = dict(zip(params["names"], map(look, params["results"])))
    ours = helper_digest(params["helper"])
    checks = judge(looks, ours, params["slurm"])
    without = sorted(name for name, told in looks.items() if told is not None and not _installed(told))
    return {"changed": False, "checks": [check.as_dict() for check in checks], "helper": ours, "without": without}


def look(result: Mapping[str, Any]) -> Optional[Mapping[str, str]]:
    """What a node told, from the result of its `raw` command; None where the command did not run there."""
    if result.get("unreachable") or "stdout" not in result:
        return None
    return read(str(result["stdout"]))[0]


def helper_digest(folder: str) -> str:
    """SHA-256 over what `sha256sum` prints of the helper's files, sorted by name.

    Raises:
        Absent: there is no helper in this folder. Unreadable: a file cannot be read.
    """
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".py"))
        lines = []
        for name in names:
            with open(os.path.join(folder, name), "rb") as handle:
                lines.append("%s  %s\n" % (hashlib.sha256(handle.read()).hexdigest(), name))
    except FileNotFoundError as exc:
        raise Absent("%s: there is no node helper" % folder, "give the collection's own folder") from exc
    except OSError as exc:
        raise Unreadable("%s: %s" % (exc.filename, exc.strerror)) from exc
    if not names:
        raise Absent("%s: there is no node helper" % folder, "give the collection's own folder")
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def judge(looks: Mapping[str, Optional[Mapping[str, str]]], ours: str, slurm: Sequence[str]) -> list[Check]:
    """Five checks, each over all nodes that were reached. Pure."""
    reached = {name: told for name, told in looks.items() if told is not None}
    having = {name: told for name, told in reached.items() if _installed(told)}
    others = ["%s (%s)" % (name, told["helper"][:12]) for name, told in having.items() if told["helper"] != ours]
    return [
        _reached(looks, reached),
        _over(
            "agents_installed",
            "The helper on the nodes",
            "every node has the node helper",
            sorted(set(reached) - set(having)),
            reached,
            _AGAIN,
        ),
        _over(
            "agents_version",
            "The helper's version",
            "every helper is this collection's (%s)" % ours[:12],
            sorted(others),
            having,
            "run site.yml: it brings every node's helper up to date",
        ),
        _over(
            "agents_working",
            "The helper works",
            "every helper tells who its node is",
            sorted(name for name, told in having.items() if not _works(told)),
            having,
            "run `job-recovery-node probe` there: it says what it lacks",
        ),
        _over(
            "agents_key",
            "The service reaches the helper",
            "every node allows the service's key to run it",
            sorted(name for name, told in having.items() if told.get("key") != "1"),
            having,
            _AGAIN,
        ),
        _over(
            "agents_boot_cleaning",
            "The spool is cleaned at boot",
            "every Slurm node has the systemd-tmpfiles lines",
            sorted(name for name, told in having.items() if name in slurm and told.get("tmpfiles") != "yes"),
            {name: told for name, told in having.items() if name in slurm},
            _AGAIN,
        ),
    ]


def _installed(told: Mapping[str, str]) -> bool:
    return bool(told.get("helper")) and told.get("launcher") == "yes"


def _works(told: Mapping[str, str]) -> bool:
    try:
        answer = json_text.loads(told.get("probe", ""))
    except ValueError:
        return False
    return isinstance(answer, dict) and answer.get("ok") is True


def _reached(looks: Mapping[str, Any], reached: Looks) -> Check:
    """A node that is down now is recovery's own work: a warning, unless none at all answers."""
    lost = sorted(set(looks) - set(reached))
    found = "%d of %d" % (len(reached), len(looks)) + (": not %s" % _some(lost) if lost else "")
    status = PASSED if not lost else WARNING if reached else FAILED
    hint = "what is on them is not known; look at `job-recovery incidents` and at the nodes" if lost else ""
    return Check("agents_reached", "Nodes answer", "every node answers by SSH", found, status, hint)


def _over(number: str, title: str, required: str, bad: Sequence[str], among: Looks, hint: str) -> Check:
    found = "%d of %d" % (len(among) - len(bad), len(among)) + (": not %s" % _some(bad) if bad else "")
    return Check(number, title, required, found, FAILED if bad else PASSED, hint if bad else "")


def _some(items: Sequence[str]) -> str:
    rest = len(items) - _SHOWN
    return ", ".join(items[:_SHOWN]) + (" and %d more" % rest if rest > 0 else "")
