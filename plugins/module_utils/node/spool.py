# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Clean slurmd's spool of what dead job steps left there.

After SIGKILL of a node, a reboot with a job running or kill -9 of slurmstepd, files of PMIx stay in SlurmdSpoolDir and
a restarted step fails on them: `Cannot bind() UNIX socket .../stepd.slurm.pmix.J.S: Address already in use (98)`.
slurmd removes them neither at its start nor later (seen on Slurm 24.11.5).

Only what a pattern of this file names is removed, never what belongs to a step whose slurmstepd is alive, and never
through a symbolic link or across a mount. Directories in the spool belong to users, who may put anything into them
while they are being removed: everything goes by file descriptors.

Standard library only and no import of this collection: it also runs on nodes without Ansible.
"""

from __future__ import annotations

import os
import re
import stat
import time
from typing import NamedTuple

# Without one of these a directory is not the spool of a slurmd that ever ran.
OWN_FILES = frozenset(("cred_state", "cred_state.old", "conf-cache", "hwloc_topo_whole.xml"))
# With one of these it is slurmctld's StateSaveLocation.
CONTROLLER_FILES = frozenset(("job_state", "node_state", "part_state", "trigger_state", "assoc_mgr_state"))
_NEVER = frozenset("/var/" + name for name in ("spool", "tmp", "lib", "run", "log", "cache", "opt", "mail"))

# Where PMIx keeps its application directories; only looked into, see plan_app_dirs.
APP_DIRS = "/tmp"  # noqa: S108

_STEP = r"(?P<job>[0-9]{1,10})\.(?P<step>[0-9]{1,10})(?:\.[0-9]{1,10})?"
_SPECIAL_STEPS = {"extern": "4294967292", "batch": "4294967291", "interactive": "4294967290"}
_TITLE = re.compile(r"slurmstepd: \[(?P<job>[0-9]+)(?:\+[0-9]+)?\.(?P<step>[a-z0-9]+)(?:\+[0-9]+)?\]")
_APP_DIR = re.compile(r"spmix_appdir_(?P<uid>[0-9]{1,10})_%s\Z" % _STEP)
_JOB_DIR = re.compile(r"job(?P<job>[0-9]{5,10})\Z")

# slurmd writes a job's script before it starts slurmstepd: a young directory may be that of a job that starts now.
_JOB_DIR_AGE = 60
# slurmstepd bears no job in its title for a moment after its start.
_TITLE_SECONDS = 1.0
_MAX_DEPTH = 64
_MAX_PASSES = 200
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class SpoolRefused(Exception):
    """The directory is not cleaned; `cause` is one word: relative, never, absent, not_a_spool ..."""

    def __init__(self, cause: str, message: str) -> None:
        super().__init__(message)
        self.cause = cause


class Entry(NamedTuple):
    """One directory entry as it was listed; `key` tells it from a later one of the same name."""

    folder: str
    name: str
    kind: str  # file, socket, directory, link or other
    uid: int
    changed: float  # epoch seconds
    key: tuple  # device, inode, change time in ns

    @property
    def path(self) -> str:
        """The full path."""
        return os.path.join(self.folder, self.name)


class Live(NamedTuple):
    """The steps whose slurmstepd is alive; `unknown`: one more is, and nobody can tell of which step."""

    steps: frozenset  # of (job, step), texts of digits
    unknown: bool = False

    @property
    def jobs(self) -> frozenset:
        """The jobs of these steps."""
        return frozenset(job for job, _step in self.steps)


class Decision(NamedTuple):
    """What becomes of one entry; `why` is one word: stale, live, other_job, slurmd, unlisted ..."""

    entry: Entry
    remove: bool
    why: str


def plan(entries: list, node_name: str, live: Live, jobs: object, now: float) -> list:
    """Decide about every entry of the spool. Pure.

    Args:
        entries: `Entry` list.
        node_name: NodeName, which step sockets begin with.
        live: listed after the entries, so that a step that started meanwhile has no entry among them.
        jobs: a set of job ids (texts of digits) to limit the cleaning to, or None for every dead step.
        now: epoch seconds.
    """
    return [_decide(entry, _patterns(node_name), live, jobs, now) for entry in entries]


def plan_app_dirs(entries: list, live: Live, jobs: object) -> list:
    """Decide about PMIx's directories in /tmp, where every user may make entries of any name. Pure.

    Entries of other names are nobody's business and are left out.
    """
    decisions = []
    for entry in entries:
        match = _APP_DIR.match(entry.name)
        if match and (entry.kind != "directory" or entry.uid != int(match.group("uid"))):
            decisions.append(Decision(entry, False, "forged"))
        elif match:
            decisions.append(_decide_step(entry, match, live, jobs))
    return decisions


def _patterns(node_name: str) -> tuple:
    """The allow-list: a name's pattern and the kind that slurmd or PMIx makes it."""
    return (
        (re.compile(r"stepd\.slurm\.pmix\.%s\Z" % _STEP), ("socket", "file")),
        (re.compile(r"pmix\.%s\Z" % _STEP), ("directory",)),
        (re.compile(r"%s_%s\Z" % (re.escape(node_name), _STEP)), ("socket", "file")),
        (re.compile(r"hwloc_topo_%s\.xml\Z" % _STEP), ("file",)),
    )


def _decide(entry: Entry, patterns: tuple, live: Live, jobs: object, now: float) -> Decision:
    for pattern, kinds in patterns:
        match = pattern.match(entry.name)
        if match and entry.kind in kinds:
            return _decide_step(entry, match, live, jobs)
        if match:
            return Decision(entry, False, entry.kind)
    match = _JOB_DIR.match(entry.name)
    if match and entry.kind == "directory":
        return _decide_job_dir(entry, match, live, jobs, now)
    return Decision(entry, False, "slurmd" if entry.name in OWN_FILES else "unlisted")


def _decide_step(entry: Entry, match: re.Match, live: Live, jobs: object) -> Decision:
    job, step = str(int(match.group("job"))), str(int(match.group("step")))
    if jobs is not None and job not in jobs:
        return Decision(entry, False, "other_job")
    if (job, step) in live.steps:
        return Decision(entry, False, "live")
    if live.unknown:
        return Decision(entry, False, "step_starts")
    return Decision(entry, True, "stale")


def _decide_job_dir(entry: Entry, match: re.Match, live: Live, jobs: object, now: float) -> Decision:
    job = str(int(match.group("job")))
    if jobs is not None and job not in jobs:
        return Decision(entry, False, "other_job")
    if job in live.jobs:
        return Decision(entry, False, "live")
    if live.unknown:
        return Decision(entry, False, "step_starts")
    if now - entry.changed < _JOB_DIR_AGE:
        return Decision(entry, False, "young")
    return Decision(entry, True, "stale")


def look(
    path: str,
    node_name: str,
    jobs: object = None,
    state_save_location: str = "",
    proc: str = "/proc",
    tmp: str = APP_DIRS,
) -> dict:
    """Say what `clean` would remove and keep; same arguments, same answer, nothing is touched."""
    spool = checked_path(path, state_save_location)
    decisions = _decisions(spool, node_name, _job_set(jobs), proc, tmp)
    return {
        "spool": spool,
        "removed": [decision.entry.path for decision in decisions if decision.remove],
        "kept": [_shown(decision) for decision in decisions if not decision.remove],
        "failed": [],
    }


def clean(
    path: str,
    node_name: str,
    jobs: object = None,
    state_save_location: str = "",
    proc: str = "/proc",
    tmp: str = APP_DIRS,
) -> dict:
    """Remove what dead steps left behind.

    Args:
        path: SlurmdSpoolDir with `%h` and `%n` replaced.
        node_name: NodeName.
        jobs: job ids to limit the cleaning to; None means every dead step.
        state_save_location: never cleaned, where it is known.
        proc: where processes are seen.
        tmp: where PMIx keeps its application directories; empty means nowhere.

    Returns:
        `spool` (the real path), `removed` (paths), `kept` and `failed` (lists of `path` and `why`).

    Raises:
        SpoolRefused: the directory is not one that may be cleaned; nothing was touched.
    """
    spool = checked_path(path, state_save_location)
    removed, kept, failed = [], [], []
    for decision in _decisions(spool, node_name, _job_set(jobs), proc, tmp):
        if not decision.remove:
            kept.append(_shown(decision))
            continue
        why = _remove(decision.entry)
        if not why:
            removed.append(decision.entry.path)
        elif why == "changed":
            kept.append({"path": decision.entry.path, "why": why})
        else:
            failed.append({"path": decision.entry.path, "why": why})
    return {"spool": spool, "removed": removed, "kept": kept, "failed": failed}


def _decisions(spool: str, node_name: str, jobs: object, proc: str, tmp: str) -> list:
    """Entries first, live steps second: a step that starts in between has no entry among those listed."""
    entries = list_folder(spool)
    app_dirs = list_folder(tmp) if tmp else []
    live = live_steps(proc, os.lstat(spool).st_uid)
    return plan(entries, node_name, live, jobs, time.time()) + plan_app_dirs(app_dirs, live, jobs)


def _shown(decision: Decision) -> dict:
    return {"path": decision.entry.path, "why": decision.why}


def _job_set(jobs: object) -> object:
    if jobs is None:
        return None
    found = {str(job) for job in jobs}
    for job in found:
        if not re.match(r"[1-9][0-9]{0,9}\Z", job):
            raise SpoolRefused("bad_job", "%r is not the id of a job" % job[:40])
    return frozenset(found)


def checked_path(path: str, state_save_location: str = "") -> str:
    """Return the real path of a spool directory that may be cleaned.

    Raises:
        SpoolRefused: it is relative, not normal, far too general, StateSaveLocation, not there, or no slurmd's spool.
    """
    _check_words(path)
    real = os.path.realpath(path)
    for candidate in (path.rstrip("/"), real):
        if candidate.count("/") < 2 or candidate in _NEVER:
            raise SpoolRefused("never", "%s is not a directory of slurmd alone" % (candidate or "/"))
    if state_save_location and os.path.realpath(state_save_location) == real:
        raise SpoolRefused("state_save_location", "%s is slurmctld's StateSaveLocation" % path)
    _check_content(path, real)
    return real


def _check_words(path: str) -> None:
    if not path:
        raise SpoolRefused("empty", "no spool directory is named")
    if not os.path.isabs(path):
        raise SpoolRefused("relative", "%s is not an absolute path" % path)
    if "%" in path:
        raise SpoolRefused("unresolved", "%s still has a pattern in it; give the path of this node" % path)
    if "\0" in path or os.path.normpath(path) != (path.rstrip("/") or "/"):
        raise SpoolRefused("not_normal", "%r is not a plain path" % path)


def _check_content(path: str, real: str) -> None:
    try:
        names = frozenset(os.listdir(real))
    except (FileNotFoundError, NotADirectoryError):
        raise SpoolRefused("absent", "%s is not a directory" % path) from None
    except OSError as exc:
        raise SpoolRefused("unreadable", "%s: %s" % (path, exc.strerror)) from None
    if CONTROLLER_FILES & names:
        raise SpoolRefused("state_save_location", "%s holds slurmctld's own files" % path)
    if not OWN_FILES & names:
        raise SpoolRefused("not_a_spool", "%s holds none of slurmd's own files" % path)


def list_folder(folder: str) -> list:
    """Return an `Entry` for everything in a folder; what vanishes meanwhile is left out."""
    entries = []
    for name in sorted(os.listdir(folder)):
        try:
            found = os.lstat(os.path.join(folder, name))
        except FileNotFoundError:
            continue
        entries.append(Entry(folder, name, _kind(found.st_mode), found.st_uid, found.st_mtime, _key(found)))
    return entries


def _kind(mode: int) -> str:
    kinds = ((stat.S_ISREG, "file"), (stat.S_ISSOCK, "socket"), (stat.S_ISDIR, "directory"), (stat.S_ISLNK, "link"))
    for is_kind, kind in kinds:
        if is_kind(mode):
            return kind
    return "other"


def _key(found: os.stat_result) -> tuple:
    return (found.st_dev, found.st_ino, found.st_ctime_ns)


def live_steps(proc: str, slurmd_uid: int) -> Live:
    """Return the steps whose slurmstepd is alive.

    A title can be forged by any user, so only processes of root, or of the spool's owner, count: a forged title would
    keep stale files for ever.
    """
    until = time.monotonic() + _TITLE_SECONDS
    while True:
        live = _live_now(proc, (0, slurmd_uid))
        if not live.unknown or time.monotonic() >= until:
            return live
        time.sleep(0.05)


def _live_now(proc: str, owners: tuple) -> Live:
    steps, unknown = set(), False
    for pid in os.listdir(proc):
        if not pid.isdigit():
            continue
        title = _stepd_title(os.path.join(proc, pid), owners)
        if title is None:
            continue
        match = _TITLE.match(title)
        if match:
            step = match.group("step")
            steps.add((str(int(match.group("job"))), _SPECIAL_STEPS.get(step, step)))
        else:
            unknown = True
    return Live(frozenset(steps), unknown)


def _stepd_title(folder: str, owners: tuple) -> object:
    """The command line of a slurmstepd that runs a step, None for every other process.

    `slurmstepd infinity` only keeps a cgroup and runs for ever (Slurm 23.02 and later).
    """
    try:
        with open(os.path.join(folder, "cmdline"), "rb") as file:
            words = file.read(4096).split(b"\0")
        command = words[0].decode("utf-8", "replace")
        if not (command.startswith("slurmstepd: ") or command.rsplit("/", 1)[-1] == "slurmstepd"):
            return None
        if len(words) > 1 and words[1] == b"infinity":
            return None
        with open(os.path.join(folder, "status"), encoding="utf-8", errors="replace") as file:
            status = file.read(4096)
    except OSError:  # it has ended meanwhile
        return None
    if re.search(r"^State:\s+[ZX]", status, re.MULTILINE):
        return None
    real_uid = re.search(r"^Uid:\s+([0-9]+)", status, re.MULTILINE)
    return command if real_uid and int(real_uid.group(1)) in owners else None


def _remove(entry: Entry) -> str:
    """Remove an entry if it is still the one that was listed; return why not, an empty text for done."""
    try:
        folder = os.open(entry.folder, _OPEN)
    except OSError as exc:
        return _reason(exc)
    try:
        found = os.lstat(entry.name, dir_fd=folder)
        if _key(found) != entry.key:
            return "changed"
        if entry.kind == "directory":
            _remove_tree(folder, entry.name, found.st_dev)
        else:
            os.unlink(entry.name, dir_fd=folder)
    except FileNotFoundError:
        return ""
    except _Unsafe as exc:
        return str(exc)
    except OSError as exc:
        return _reason(exc)
    finally:
        os.close(folder)
    return ""


class _Unsafe(Exception):
    """A directory is not removed: another file system begins in it, or it is deeper than anybody needs."""


def _remove_tree(parent: int, name: str, device: int) -> None:
    """Remove a directory, however deep its user made it: what lies too deep for one pass is moved up for the next."""
    top = os.open(name, _OPEN, dir_fd=parent)
    try:
        _check_device(top, device)
        for _turn in range(_MAX_PASSES):
            _empty(top, top, device, 0)
            if not os.listdir(top):
                break
        else:
            raise _Unsafe("too_deep")
    finally:
        os.close(top)
    os.rmdir(name, dir_fd=parent)


def _empty(top: int, folder: int, device: int, depth: int) -> None:
    for child in os.listdir(folder):
        if not stat.S_ISDIR(os.lstat(child, dir_fd=folder).st_mode):
            os.unlink(child, dir_fd=folder)
        elif depth >= _MAX_DEPTH:
            os.rename(child, ".deep-" + os.urandom(8).hex(), src_dir_fd=folder, dst_dir_fd=top)
        else:
            below = os.open(child, _OPEN, dir_fd=folder)
            try:
                _check_device(below, device)
                _empty(top, below, device, depth + 1)
            finally:
                os.close(below)
            os.rmdir(child, dir_fd=folder)


def _check_device(folder: int, device: int) -> None:
    if os.fstat(folder).st_dev != device:
        raise _Unsafe("mount")


def _reason(exc: OSError) -> str:
    return (exc.strerror or "error").lower().replace(" ", "_")
