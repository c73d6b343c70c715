# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Is Slurm fit for recovery: reachable, acting on this head node, and configured so that lost jobs can run again.

`judge` is pure: what Slurm said in, checks out. `run` asks Slurm once for each thing.
"""

from __future__ import annotations

import os
import posixpath
import re
import socket
from dataclasses import dataclass, field
from typing import Any, Mapping, Optional, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks.model import (
    FAILED,
    PASSED,
    UNKNOWN,
    WARNING,
    Check,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import RecoveryError
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.cli import SlurmCli
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.commands import (
    Controller,
    resolve_spool_dir,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.models import Node

SPEC: dict[str, Any] = {
    "argument_spec": {
        "bin_dir": {"type": "path"},
        "timeout": {"type": "float", "default": 10.0},
        "nodes": {"type": "list", "elements": "str", "default": []},
        "partitions": {"type": "list", "elements": "str", "default": []},
        "on_active_controller": {"type": "bool", "default": True},
        "oldest_version": {"type": "str", "default": "22.05"},
        "min_job_age": {"type": "int", "default": 300},
        "user": {"type": "str", "default": ""},
    },
    "supports_check_mode": True,
}

# Linux: sun_path of sockaddr_un holds 108 bytes with the closing zero. The longest name that Slurm puts into the spool
# is that of PMIx's socket; job and step ids have up to ten digits.
_SOCKET_PATH = 107
_SOCKET_NAME = "stepd.slurm.pmix.4294967294.4294967294"
_NO_SPOOL = frozenset("/ /tmp /var /var/spool /var/lib /var/tmp /run /root /home /etc /usr".split())
_PLAIN_PATH = re.compile(r"(?:/[A-Za-z0-9][A-Za-z0-9._-]*)+\Z")


@dataclass(frozen=True)
class Wanted:
    """What is required. Durations in seconds."""

    hostnames: Sequence[str] = ()  # of this host; empty: it need not be the acting controller
    nodes: Sequence[str] = ()  # that Slurm must know
    partitions: Sequence[str] = ()  # that must exist
    oldest_version: str = "22.05"
    min_job_age: int = 300
    user: str = ""  # that must be an administrator; empty: not asked


@dataclass(frozen=True)
class Said:
    """What Slurm said; None where it gave no answer."""

    controllers: Sequence[Controller] = ()
    config: Optional[Mapping[str, str]] = None
    nodes: Optional[Sequence[Node]] = None
    trouble: str = ""
    spool_dirs: Mapping[str, str] = field(default_factory=dict)  # by NodeName
    admin_level: Optional[str] = None  # of the wanted user


def run(params: dict[str, Any], check_mode: bool) -> dict[str, Any]:
    """Ask Slurm and judge. Nothing is ever changed.

    Returns:
        `{"changed": false, "checks": [...], "version", "slurmd_spool_dir", "spool_dirs": {NodeName: path},
        "state_save_location"}`; the last four are empty when Slurm gave no answer.
    """
    del check_mode  # reads only
    said = ask(SlurmCli(params["bin_dir"], params["timeout"]), params["user"])
    wanted = Wanted(
        hostnames=_own_names() if params["on_active_controller"] else (),
        nodes=params["nodes"],
        partitions=params["partitions"],
        oldest_version=params["oldest_version"],
        min_job_age=params["min_job_age"],
        user=params["user"],
    )
    config = said.config or {}
    return {
        "changed": False,
        "checks": [check.as_dict() for check in judge(said, wanted)],
        "version": config.get("SLURM_VERSION", ""),
        "slurmd_spool_dir": config.get("SlurmdSpoolDir", ""),
        "spool_dirs": dict(said.spool_dirs),
        "state_save_location": config.get("StateSaveLocation", ""),
    }


def ask(slurm: SlurmCli, user: str = "") -> Said:
    """Read controllers, configuration, nodes and a user's level. No answer is an answer, too."""
    try:
        controllers = slurm.ping()
        config = slurm.config()
        nodes = slurm.nodes()
        level = slurm.admin_level(user) if user and _accounts(config) else None
    except RecoveryError as exc:
        return Said(trouble=str(exc))
    template = config.get("SlurmdSpoolDir", "")
    spools = {node.name: resolve_spool_dir(template, node) for node in nodes}
    return Said(controllers, config, nodes, spool_dirs=spools, admin_level=level)


def judge(said: Said, wanted: Wanted) -> list[Check]:
    """All checks, in the order in which a person would look."""
    reachable = _reachable(said)
    if said.config is None or said.nodes is None:
        return [reachable]
    checks = [reachable, _version(said.config, wanted)]
    if wanted.hostnames:
        checks.append(_acting(said.controllers, wanted.hostnames))
    if wanted.user:
        checks.append(_rights(said, wanted.user))
    checks += [
        _nodes(said.nodes, wanted),
        _requeue(said.config),
        _job_comment(said.config),
        _accounting(said.config),
        _min_job_age(said.config, wanted),
        _spool(said),
        _return_to_service(said.config),
    ]
    return checks


def _reachable(said: Said) -> Check:
    title, required = "Slurm answers", "slurmctld answers within the deadline"
    if said.config is None or said.nodes is None:
        hint = "run `scontrol ping` on this host; recovery needs Slurm's commands and configuration there"
        return Check("slurm_reachable", title, required, said.trouble or "no answer", FAILED, hint)
    up = ", ".join("%s (%s)" % (each.host, each.role) for each in said.controllers if each.up)
    return Check("slurm_reachable", title, required, "slurmctld on %s" % (up or "no host"), PASSED if up else FAILED)


def _version(config: Mapping[str, str], wanted: Wanted) -> Check:
    found = config.get("SLURM_VERSION", "")
    numbers, oldest = _numbers(found), _numbers(wanted.oldest_version)
    status = UNKNOWN if not numbers else PASSED if numbers[:2] >= oldest[:2] else FAILED
    hint = "" if status == PASSED else "upgrade Slurm"
    return Check(
        "slurm_version", "Slurm's version", "%s or newer" % wanted.oldest_version, found or "none", status, hint
    )


def _acting(controllers: Sequence[Controller], hostnames: Sequence[str]) -> Check:
    """The acting slurmctld is the first in the list that is up: a backup serves only while all before it are down."""
    title, required = "This head node is the active one", "the slurmctld that acts runs on this host"
    acting = next((each.host for each in controllers if each.up), None)
    if acting is None:
        return Check("slurm_active_controller", title, required, "no slurmctld is up", UNKNOWN, "start slurmctld")
    ours = _short(acting) in {_short(name) for name in hostnames}
    hint = "" if ours else "run the installation against %s, or make this head node the active one first" % acting
    found = "%s acts, this is %s" % (acting, hostnames[0])
    return Check("slurm_active_controller", title, required, found, PASSED if ours else FAILED, hint)


def _rights(said: Said, user: str) -> Check:
    """Changing nodes wants Slurm's administrator level (slurm.conf(5), SlurmUser; sacctmgr(1), AdminLevel)."""
    config = said.config or {}
    owner = config.get("SlurmUser", "").split("(", 1)[0]
    title, required = "The service may change nodes", "AdminLevel=Administrator, or SlurmUser itself"
    if user in ("root", owner):
        return Check("slurm_rights", title, required, "%s is %s" % (user, owner or "root"), PASSED)
    found = "%s has AdminLevel %s" % (user, said.admin_level) if said.admin_level else "%s has no Slurm account" % user
    if said.admin_level == "Administrator":
        return Check("slurm_rights", title, required, found, PASSED)
    hint = "run `sacctmgr modify user name=%s set adminlevel=Admin`, or set controller_slurm_rights to true" % user
    if not _accounts(config):
        hint = "there is no accounting: set job_recovery_user to SlurmUser (%s)" % owner
    return Check("slurm_rights", title, required, found, FAILED, hint)


def _accounts(config: Mapping[str, str]) -> bool:
    return config.get("AccountingStorageType", "").endswith("slurmdbd")


def _nodes(nodes: Sequence[Node], wanted: Wanted) -> Check:
    title = "Slurm knows the nodes and partitions"
    known = {node.name for node in nodes}
    partitions = {name for node in nodes for name in node.partitions}
    missing = [name for name in wanted.nodes if name not in known]
    unknown = [name for name in wanted.partitions if name not in partitions]
    found = "%d nodes in %d partitions" % (len(known), len(partitions))
    if missing:
        found += "; no node %s" % _some(missing)
    if unknown:
        found += "; no partition %s with nodes" % _some(unknown)
    required = "every node and partition of the inventory exists in Slurm"
    hint = "correct job_recovery_slurm_name and job_recovery_partitions in the inventory" if missing or unknown else ""
    return Check("slurm_nodes", title, required, found, FAILED if missing or unknown else PASSED, hint)


def _requeue(config: Mapping[str, str]) -> Check:
    found = config.get("JobRequeue", "")
    required = "JobRequeue=1, or every job says --requeue"
    status = {"1": PASSED, "0": WARNING}.get(found, UNKNOWN)
    hint = (
        ""
        if status == PASSED
        else "set JobRequeue=1 in slurm.conf, else jobs without --requeue are lost with their node"
    )
    return Check("slurm_job_requeue", "Jobs may be requeued", required, "JobRequeue=%s" % found, status, hint)


def _job_comment(config: Mapping[str, str]) -> Check:
    flags = [flag.strip().lower() for flag in config.get("AccountingStoreFlags", "").split(",") if flag.strip()]
    status = PASSED if "job_comment" in flags else FAILED
    hint = (
        ""
        if status == PASSED
        else (
            "add job_comment to AccountingStoreFlags in slurm.conf, then `scontrol reconfigure`: jobs opt in to "
            "restarts by their comment, which finished jobs lose otherwise"
        )
    )
    found = "AccountingStoreFlags=%s" % (",".join(flags) or "(none)")
    return Check("slurm_job_comment", "Job comments are kept", "AccountingStoreFlags=job_comment", found, status, hint)


def _accounting(config: Mapping[str, str]) -> Check:
    found = config.get("AccountingStorageType", "(none)")
    status = PASSED if _accounts(config) else WARNING
    hint = (
        ""
        if status == PASSED
        else (
            "without slurmdbd finished jobs are forgotten after MinJobAge, and nobody but root and SlurmUser can be "
            "allowed to change nodes: set job_recovery_user to SlurmUser and controller_slurm_rights to false"
        )
    )
    required = "AccountingStorageType=accounting_storage/slurmdbd"
    return Check("slurm_accounting", "Accounting by slurmdbd", required, found, status, hint)


def _min_job_age(config: Mapping[str, str], wanted: Wanted) -> Check:
    text = config.get("MinJobAge", "")
    numbers = _numbers(text)
    age = numbers[0] if numbers else None
    status = UNKNOWN if age is None else PASSED if age == 0 or age >= wanted.min_job_age else WARNING
    hint = "" if status == PASSED else "raise MinJobAge: a job that slurmctld has forgotten cannot be requeued"
    required = "MinJobAge of at least %d s" % wanted.min_job_age
    return Check("slurm_min_job_age", "Finished jobs are remembered", required, "MinJobAge=%s" % text, status, hint)


def _spool(said: Said) -> Check:
    """One check for all nodes: each spool is slurmd's own, plain, and short enough for the sockets in it."""
    title = "slurmd's spool can be cleaned"
    required = "a folder of slurmd's own, short enough for PMIx's sockets"
    template = (said.config or {}).get("SlurmdSpoolDir", "")
    state = (said.config or {}).get("StateSaveLocation", "")
    faults = {name: spool_fault(path, state) for name, path in said.spool_dirs.items()}
    bad = [(name, fault) for name, fault in sorted(faults.items()) if fault]
    if not bad:
        return Check("slurm_spool_dir", title, required, "SlurmdSpoolDir=%s" % template, PASSED)
    found = "SlurmdSpoolDir=%s: %s" % (template, _some(["%s %s" % each for each in bad]))
    return Check("slurm_spool_dir", title, required, found, FAILED, "correct SlurmdSpoolDir in slurm.conf")


def spool_fault(path: str, state_save_location: str) -> str:
    """Why this path cannot be a spool that recovery cleans; the empty text where it can."""
    if not path.startswith("/"):
        return "is no absolute path"
    normal = posixpath.normpath(path)
    if normal in _NO_SPOOL:
        return "shares %s with others" % normal
    if not _PLAIN_PATH.match(path.rstrip("/")) or ".." in path.split("/"):
        return "has characters other than letters, digits, dot, dash and underscore in its path"
    if state_save_location and normal == posixpath.normpath(state_save_location):
        return "is the same as StateSaveLocation"
    if len(normal) + 1 + len(_SOCKET_NAME) > _SOCKET_PATH:
        return "is too long for sockets (%d characters, at most %d)" % (
            len(normal),
            _SOCKET_PATH - 1 - len(_SOCKET_NAME),
        )
    return ""


def _return_to_service(config: Mapping[str, str]) -> Check:
    meanings = {
        "0": "a node that was DOWN comes back only by recovery or a person",
        "1": "a node that did not respond comes back by itself, a node that rebooted does not",
        "2": "every node that registers in order comes back by itself, unproved",
    }
    value = config.get("ReturnToService", "")
    status = PASSED if value in ("0", "1") else WARNING if value == "2" else UNKNOWN
    hint = "" if status == PASSED else "with 0 or 1, recovery proves a node that rebooted before jobs run on it again"
    found = "ReturnToService=%s: %s" % (value, meanings.get(value, "unknown"))
    return Check("slurm_return_to_service", "How nodes return", "ReturnToService of 0 or 1", found, status, hint)


def _own_names() -> list[str]:
    names = [socket.gethostname(), os.uname().nodename]
    return list(dict.fromkeys(names))


def _short(name: str) -> str:
    return name.split(".", 1)[0].lower()


def _numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text)]


def _some(items: Sequence[str]) -> str:
    """The first few, and how many more."""
    rest = len(items) - 5
    return ", ".join(items[:5]) + (" and %d more" % rest if rest > 0 else "")
