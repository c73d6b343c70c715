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
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Mapping, Optional, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks import facts, slurm_settings
from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks.hosts import grouped, listed
from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks.model import (
    FAILED,
    PASSED,
    UNKNOWN,
    WARNING,
    Check,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import RecoveryError
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm import hostlist
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
        "newest_version": {"type": "str", "default": "24.11"},
        "min_job_age": {"type": "int", "default": 300},
        "attempts": {"type": "int", "default": 3},
        "user": {"type": "str", "default": ""},
        "user_is_made": {"type": "bool", "default": False},
        "reachable_only": {"type": "bool", "default": False},
    },
    "supports_check_mode": True,
}

# Linux: sun_path of sockaddr_un holds 108 bytes with the closing zero. The longest name that Slurm puts into the spool
# is that of PMIx's socket; job and step ids have up to ten digits.
_SOCKET_PATH = 107
_SOCKET_NAME = "stepd.slurm.pmix.4294967294.4294967294"
_NO_SPOOL = frozenset("/ /tmp /var /var/spool /var/lib /var/tmp /run /root /home /etc /usr".split())
_PLAIN_PATH = re.compile(r"(?:/[A-Za-z0-9][A-Za-z0-9._-]*)+\Z")


_TAKEN = (
    "nodes",
    "partitions",
    "oldest_version",
    "newest_version",
    "min_job_age",
    "attempts",
    "user",
    "user_is_made",
)


@dataclass(frozen=True)
class Wanted:
    """What is required. Durations in seconds."""

    hostnames: Sequence[str] = ()  # of this host; empty: it need not be the acting controller
    nodes: Sequence[str] = ()  # that Slurm must know
    partitions: Sequence[str] = ()  # that must exist
    oldest_version: str = "22.05"
    newest_version: str = "24.11"  # the newest that was tried
    min_job_age: int = 300
    attempts: int = 3  # how often a job is requeued
    user: str = ""  # that must be an administrator; empty: not asked
    user_is_made: bool = False  # the installer makes it an administrator


@dataclass(frozen=True)
class Said:
    """What Slurm said; None where it gave no answer."""

    controllers: Sequence[Controller] = ()
    config: Optional[Mapping[str, str]] = None
    nodes: Optional[Sequence[Node]] = None
    trouble: str = ""
    spool_dirs: Mapping[str, str] = field(default_factory=dict)  # by NodeName
    admin_level: Optional[str] = None  # of the wanted user
    level_trouble: str = ""  # why its level is not known


def run(params: dict[str, Any], check_mode: bool) -> dict[str, Any]:
    """Ask Slurm and judge. Nothing is ever changed.

    Returns:
        `{"changed": false, "checks", "version", "slurmd_spool_dir", "spool_dirs": {NodeName: path},
        "state_save_location", "nodes"}`, the nodes as `facts.slurm_nodes` gives them; the last five are empty when
        Slurm gave no answer.
    """
    del check_mode  # reads only
    said = ask(SlurmCli(params["bin_dir"], params["timeout"]), params["user"])
    wanted = Wanted(
        hostnames=_own_names() if params["on_active_controller"] else (),
        **{name: params[name] for name in _TAKEN},
    )
    config = said.config or {}
    checks = [_reachable(said)] if params["reachable_only"] else judge(said, wanted)
    return {
        "changed": False,
        "checks": [check.as_dict() for check in checks],
        "version": config.get("SLURM_VERSION", ""),
        "slurmd_spool_dir": config.get("SlurmdSpoolDir", ""),
        "spool_dirs": dict(said.spool_dirs),
        "state_save_location": config.get("StateSaveLocation", ""),
        "nodes": facts.slurm_nodes(said.nodes or ()),
    }


def ask(slurm: SlurmCli, user: str = "") -> Said:
    """Read controllers, configuration, nodes and a user's level. No answer is an answer, too."""
    try:
        controllers = slurm.ping()
        config = slurm.config()
        nodes = slurm.nodes()
    except RecoveryError as exc:
        return Said(trouble=str(exc))
    template = config.get("SlurmdSpoolDir", "")
    spools = {node.name: resolve_spool_dir(template, node) for node in nodes}
    level, trouble = _level(slurm, user) if user and slurm_settings.has_accounts(config) else (None, "")
    return Said(controllers, config, nodes, spool_dirs=spools, admin_level=level, level_trouble=trouble)


def _level(slurm: SlurmCli, user: str) -> tuple[Optional[str], str]:
    """A user's level, and why it is not known: slurmdbd may be down while slurmctld answers."""
    try:
        return slurm.admin_level(user), ""
    except RecoveryError as exc:
        return None, str(exc)


def judge(said: Said, wanted: Wanted) -> list[Check]:
    """All checks, in the order in which a person would look."""
    reachable = _reachable(said)
    if said.config is None or said.nodes is None:
        return [reachable]
    checks = [reachable, _version(said.config, wanted), _node_versions(said.config, said.nodes)]
    if wanted.hostnames:
        checks.append(_acting(said.controllers, wanted.hostnames))
    if wanted.user:
        checks.append(_rights(said, wanted))
    least = slurm_settings.Least(wanted.min_job_age, wanted.attempts)
    return [*checks, _nodes(said.nodes, wanted), *slurm_settings.judge(said.config, least), _spool(said)]


def _reachable(said: Said) -> Check:
    title, required = "Slurm answers", "slurmctld answers within the deadline"
    if said.config is None or said.nodes is None:
        hint = "run `scontrol ping` on this host; recovery needs Slurm's commands and configuration there"
        return Check("slurm_reachable", title, required, said.trouble or "no answer", FAILED, hint)
    up = ", ".join("%s (%s)" % (each.host, each.role) for each in said.controllers if each.up)
    return Check("slurm_reachable", title, required, "slurmctld on %s" % (up or "no host"), PASSED if up else FAILED)


def _version(config: Mapping[str, str], wanted: Wanted) -> Check:
    found = config.get("SLURM_VERSION", "")
    release = _release(found)
    required = "from %s to %s" % (wanted.oldest_version, wanted.newest_version)
    status, hint = UNKNOWN, "run `scontrol --version`"
    if release and release < _release(wanted.oldest_version):
        status, hint = FAILED, "upgrade Slurm"
    elif release and release > _release(wanted.newest_version):
        status, hint = WARNING, "recovery was not tried with this version: let it observe first"
    elif release:
        status, hint = PASSED, ""
    return Check("slurm_version", "Slurm's version", required, found or "none", status, hint)


def _node_versions(config: Mapping[str, str], nodes: Sequence[Node]) -> Check:
    """slurmd may be up to two releases older than slurmctld (since 24.11 three), never newer."""
    ours = _release(config.get("SLURM_VERSION", ""))
    versions = Counter(node.version for node in nodes if node.version)
    newer = {node.name: node.version for node in nodes if node.version and _release(node.version) > ours}
    found = ", ".join("%s on %d" % each for each in sorted(versions.items())) or "no node tells"
    title, required = "slurmd's version", "no slurmd is newer than slurmctld, all are of one release"
    if newer and ours:
        found = "%s; newer than slurmctld: %s" % (found, listed(newer))
        return Check("slurm_node_versions", title, required, found, FAILED, "upgrade slurmctld first, then the nodes")
    if len({_release(version) for version in versions}) > 1:
        hint = "finish the upgrade: jobs that restart elsewhere should find the same slurmd"
        return Check("slurm_node_versions", title, required, found, WARNING, hint)
    return Check("slurm_node_versions", title, required, found, PASSED)


def _acting(controllers: Sequence[Controller], hostnames: Sequence[str]) -> Check:
    """The acting slurmctld is the first in the list that is up: a backup serves only while all before it are down."""
    title, required = "This head node is the active one", "the slurmctld that acts runs on this host"
    acting = next((each.host for each in controllers if each.up), None)
    if acting is None:
        return Check("slurm_active_controller", title, required, "no slurmctld is up", UNKNOWN, "start slurmctld")
    ours = any(hostlist.same_host(acting, name) for name in hostnames)
    hint = "" if ours else "run the installation against %s, or make this head node the active one first" % acting
    found = "%s acts, this is %s" % (acting, hostnames[0])
    return Check("slurm_active_controller", title, required, found, PASSED if ours else FAILED, hint)


def _rights(said: Said, wanted: Wanted) -> Check:
    """The service's user has exactly the administrator level (slurm.conf(5), SlurmUser; sacctmgr(1), AdminLevel).

    Changing nodes wants it, and it includes the operator's, which requeueing others' jobs wants. root and SlurmUser may
    do more than that, and everything that runs as them could.
    """
    config, user = said.config or {}, wanted.user
    owner = config.get("SlurmUser", "").split("(", 1)[0]
    title, required = "The service may change nodes", "AdminLevel=Administrator, and not more"
    if user in ("root", owner):
        status = WARNING if slurm_settings.has_accounts(config) else PASSED
        hint = "let the service have a user of its own (job_recovery_user)" if status == WARNING else ""
        return Check(
            "slurm_rights",
            title,
            required,
            "%s is %s" % (user, "root" if user == "root" else "SlurmUser"),
            status,
            hint,
        )
    if said.level_trouble:
        return Check("slurm_rights", title, required, said.level_trouble, UNKNOWN, "check that slurmdbd answers")
    found = "%s has AdminLevel %s" % (user, said.admin_level) if said.admin_level else "%s has no Slurm account" % user
    if said.admin_level == "Administrator":
        return Check("slurm_rights", title, required, found, PASSED)
    if wanted.user_is_made and slurm_settings.has_accounts(config):
        return Check("slurm_rights", title, required, found + "; the installation makes it an administrator", PASSED)
    hint = "run `sacctmgr modify user name=%s set adminlevel=Admin`, or set controller_slurm_rights to true" % user
    if not slurm_settings.has_accounts(config):
        hint = "there is no accounting: set job_recovery_user to SlurmUser (%s)" % owner
    return Check("slurm_rights", title, required, found, FAILED, hint)


def _nodes(nodes: Sequence[Node], wanted: Wanted) -> Check:
    title = "Slurm knows the nodes and partitions"
    known = {node.name for node in nodes}
    partitions = {name for node in nodes for name in node.partitions}
    missing = [name for name in wanted.nodes if name not in known]
    unknown = [name for name in wanted.partitions if name not in partitions]
    found = "%d nodes in %d partitions" % (len(known), len(partitions))
    if missing:
        found += "; no node %s" % listed(missing)
    if unknown:
        found += "; no partition %s with nodes" % ", ".join(sorted(unknown))
    required = "every node and partition of the inventory exists in Slurm"
    hint = "correct job_recovery_slurm_name and job_recovery_partitions in the inventory" if missing or unknown else ""
    return Check("slurm_nodes", title, required, found, FAILED if missing or unknown else PASSED, hint)


def _spool(said: Said) -> Check:
    """One check for all nodes: each spool is slurmd's own, plain, and short enough for the sockets in it."""
    title = "slurmd's spool can be cleaned"
    required = "a folder of slurmd's own, short enough for PMIx's sockets"
    template = (said.config or {}).get("SlurmdSpoolDir", "")
    state = (said.config or {}).get("StateSaveLocation", "")
    faults = {name: spool_fault(path, state) for name, path in said.spool_dirs.items()}
    places = Counter(_place(node, said.spool_dirs) for node in said.nodes or ())
    for node in said.nodes or ():
        if places[_place(node, said.spool_dirs)] > 1 and not faults.get(node.name):
            faults[node.name] = "shares it with another slurmd on %s" % (node.hostname or node.name)
    wrong = grouped(faults)
    if not wrong:
        return Check("slurm_spool_dir", title, required, "SlurmdSpoolDir=%s" % template, PASSED)
    found = "SlurmdSpoolDir=%s: %s" % (template, wrong)
    hint = "correct SlurmdSpoolDir in slurm.conf, for example SlurmdSpoolDir=/var/spool/slurmd"
    if "shares it" in wrong:
        hint = "several slurmd on one host need %n in SlurmdSpoolDir, for example /var/spool/slurmd.%n"
    return Check("slurm_spool_dir", title, required, found, FAILED, hint)


def _place(node: Node, spools: Mapping[str, str]) -> tuple[str, str]:
    return (node.hostname or node.name, posixpath.normpath(spools.get(node.name, "")))


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


def _own_names() -> list[str]:
    names = [socket.gethostname(), os.uname().nodename]
    return list(dict.fromkeys(names))


def _release(text: str) -> tuple[int, ...]:
    """Year and month of a version such as `24.11.5`; empty where there is none."""
    return tuple(int(number) for number in re.findall(r"\d+", text)[:2])
