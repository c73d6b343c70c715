# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Slurm on the lab: its configuration, its accounts, what it says of its nodes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from . import command, ssh
from .errors import LabError
from .instance import HEAD, Instance, checkout

_SETTING = re.compile(r"^([A-Za-z]+)=(\S.*)$")
_CALL_SECONDS = 20


@dataclass(frozen=True)
class Node:
    """One node as Slurm sees it; ``state`` with all flags, in lower case, as in ``down+drain+not_responding``."""

    name: str
    state: str
    reason: str


# Configuration


def parse_settings(words: Sequence[str]) -> dict[str, str]:
    """``KEY=VALUE`` words as a dictionary; ``KEY=`` takes a setting back. Raises LabError for anything else."""
    settings = {}
    for word in words:
        key, found, value = word.partition("=")
        if not found or not key.isascii() or not key.isalpha() or "\n" in value:
            raise LabError(f"Not a setting of slurm.conf: {word!r} (KEY=VALUE, or KEY= for the lab's default)")
        settings[key] = value
    return settings


def overridden(text: str, settings: Mapping[str, str]) -> str:
    """slurm.conf with other values for some keys; a key it does not have is added. Case is ignored, as by Slurm."""
    left = {key.lower(): (key, value) for key, value in settings.items()}
    lines = []
    for line in text.splitlines():
        match = _SETTING.match(line)
        changed = left.pop(match[1].lower(), None) if match else None
        lines.append(f"{changed[0]}={changed[1]}" if changed else line)
    lines += [f"{key}={value}" for key, value in left.values()]
    return "\n".join(lines) + "\n"


def configuration(instance: Instance) -> str:
    """slurm.conf of this instance, the same on all hosts."""
    return overridden(_file("slurm.conf").read_text(encoding="utf-8"), _overrides(instance))


def database_configuration(password: str) -> str:
    """slurmdbd.conf with the password of its database account."""
    return _file("slurmdbd.conf").read_text(encoding="utf-8").replace("@PASSWORD@", password)


def set_configuration(instance: Instance, settings: Mapping[str, str]) -> None:
    """Remember other values for settings of slurm.conf; an empty value forgets one. Raises LabError for node lines."""
    for key in settings:
        if key.lower() in ("nodename", "partitionname", "clustername", "slurmctldhost"):
            raise LabError(f"{key} of the lab is fixed")
    kept = {key: value for key, value in {**_overrides(instance), **settings}.items() if value}
    file = _overrides_file(instance)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def push_configuration(instance: Instance) -> None:
    """Bring slurm.conf to the running hosts that answer, and have Slurm read it again."""
    text = configuration(instance)
    for host in instance.hosts:
        (instance.seed(host) / "etc/slurm/slurm.conf").write_text(text, encoding="utf-8")

    def push(host: str) -> str | None:
        script = "cat > /etc/slurm/slurm.conf.new && mv /etc/slurm/slurm.conf.new /etc/slurm/slurm.conf"
        try:
            ssh.run(instance, host, script, stdin=text, timeout=10)
        except LabError:
            return host
        return None

    with ThreadPoolExecutor(max_workers=len(instance.hosts)) as pool:
        missed = [host for host in pool.map(push, instance.hosts) if host]
    ssh.run(instance, HEAD, ["scontrol", "reconfigure"], timeout=_CALL_SECONDS)
    if missed:
        raise LabError(f"Did not reach {', '.join(missed)}; run the same command again when they answer")


def _overrides(instance: Instance) -> dict[str, str]:
    file = _overrides_file(instance)
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


def _overrides_file(instance: Instance) -> Path:
    return instance.state / "slurm_overrides.json"


def _file(name: str) -> Path:
    return checkout() / "lab" / "files" / "slurm" / name


# The running cluster


def set_up_accounts(instance: Instance) -> None:
    """Wait for slurmdbd and add cluster, account and users to it."""
    script = _file("accounts.sh").read_text(encoding="utf-8")

    def done() -> bool:
        return ssh.run(instance, HEAD, ["sh", "-s"], stdin=script, timeout=60, check=False).returncode == 0

    command.wait_for("accounts in slurmdbd (see lab/ssh head journalctl -u slurmdbd)", done, timeout=60, interval=0.5)


def nodes(instance: Instance) -> list[Node]:
    """All compute nodes as Slurm sees them. Raises LabError if slurmctld does not answer."""
    argv = ["timeout", "15", "sinfo", "--Node", "--noheader", "--Format=NodeList:64,StateComplete:128,Reason:512"]
    return parse_nodes(ssh.run(instance, HEAD, argv, timeout=_CALL_SECONDS).stdout)


def parse_nodes(text: str) -> list[Node]:
    """Nodes from ``sinfo --Format=NodeList:64,StateComplete:128,Reason:512``."""
    found = {}
    for line in text.splitlines():
        name, state, reason = line[:64].strip(), line[64:192].strip(), line[192:].strip()
        if name:
            found[name] = Node(name, state, "" if reason == "none" else reason)
    return list(found.values())


def wait_idle(instance: Instance, timeout: float = 60) -> None:
    """Wait until every node is in service. Raises LabError that tells the state of those that are not."""
    seen: list[Node] = []

    def idle() -> bool:
        try:
            seen[:] = nodes(instance)
        except LabError:
            return False
        return len(seen) == len(instance.nodes) and all(node.state == "idle" for node in seen)

    try:
        command.wait_for("Slurm with all nodes idle", idle, timeout=timeout, interval=0.3)
    except LabError as exc:
        told = ", ".join(f"{node.name} {node.state}" for node in seen) or "slurmctld does not answer"
        raise LabError(f"{exc}: {told}") from exc
