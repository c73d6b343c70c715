# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The `helm` command: with a deadline, with nothing of its own left on the disk, and interruptible.

All that helm writes (logins, repositories, caches) goes to a private folder of one run. A small shell beside us removes
that folder also when we are killed: it waits for the end of a pipe that only we hold.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import stat
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass
from typing import Any, Callable, Iterator, Mapping, Optional, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import (
    Absent,
    BadInput,
    RecoveryError,
)

_PREFIX = "job-recovery-helm-"
_MEMORY = "/dev/shm"  # noqa: S108 - only where a folder that is ours alone is made
# helm ends an interrupted operation by writing that it failed, for which it needs the API server.
_GRACE = 15.0
# Reads lines until we are gone. The last one is the process group of a helm that must not outlive us, or empty.
_REAPER = (
    'last=; while read -r line; do last=$line; done; [ -z "$last" ] || kill -s KILL -- "-$last" 2>/dev/null;'
    ' rm -rf -- "$1"'
)


class Interrupted(BaseException):
    """Somebody wants us to end (SIGTERM, SIGHUP); what is to be put in order first stands in `finally`."""

    def __init__(self, number: int) -> None:
        super().__init__("signal %d" % number)
        self.number = number


@dataclass(frozen=True)
class Ended:
    """How a command ended: exit code (negative: by a signal), its texts, and whether the deadline ended it."""

    rc: int
    stdout: str
    stderr: str
    timed_out: bool = False


class Helm:
    """Calls of one helm command, everything that it keeps in `folder`.

    Args:
        program: its name on PATH, or its path.
        folder: a private folder, see `private_folder`.
        until: moment (time.monotonic) at which every call ends at the latest.
        secrets: texts that are taken out of whatever helm says.
    """

    def __init__(self, program: str, folder: PrivateFolder, until: float, secrets: Sequence[str] = ()) -> None:
        self._program = program
        self._folder = folder
        self._until = until
        self._secrets = sorted((secret for secret in secrets if secret), key=len, reverse=True)

    @property
    def left(self) -> float:
        """Seconds until the deadline."""
        return self._until - time.monotonic()

    def run(
        self,
        args: Sequence[str],
        stdin: str = "",
        tick: Optional[Callable[[], None]] = None,
        interval: float = 2.0,
        outlives: bool = False,
    ) -> Ended:
        """Run `helm ARGS`.

        Args:
            stdin: what it reads; a secret may be in it.
            tick: called every `interval` seconds meanwhile.
            outlives: it goes on when we are killed, so that it can bring to an end what it has begun in the cluster.

        Raises:
            Absent: there is no helm.
        """
        child = self._started(args)
        self._folder.watch(None if outlives else child.pid)
        try:
            ended = _attended(child, stdin.encode(), self._until, tick, interval)
        except BaseException:
            _end(child)
            raise
        finally:
            self._folder.watch(None)
        return Ended(ended.rc, self.clean(ended.stdout), self.clean(ended.stderr), ended.timed_out)

    def clean(self, text: str) -> str:
        """`text` without the secrets."""
        for secret in self._secrets:
            text = text.replace(secret, "********")
        return text

    def _started(self, args: Sequence[str]) -> subprocess.Popen:
        try:
            return subprocess.Popen(
                [self._program, *args],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment(os.environ, self._folder.path),
                start_new_session=True,
            )
        except OSError as exc:
            raise Absent(
                "the command %s cannot be run: %s" % (self._program, exc.strerror),
                "install Helm 3.13 or newer on the machine that runs this, or say where it is",
            ) from exc


def environment(inherited: Mapping[str, str], folder: str) -> dict[str, str]:
    """The variables of a helm that writes below `folder` only. HOME stays: a kubeconfig may need a program's login."""
    kept = {
        name: value
        for name, value in inherited.items()
        if not name.startswith(("HELM_", "DOCKER_")) and name != "REGISTRY_AUTH_FILE"
    }
    own = {name: os.path.join(folder, name.lower()) for name in ("HELM_CACHE_HOME", "HELM_CONFIG_HOME")}
    own["HELM_DATA_HOME"] = os.path.join(folder, "helm_data_home")  # an administrator's plug-ins do not take part
    own["DOCKER_CONFIG"] = os.path.join(folder, "docker")
    own["KUBECACHEDIR"] = os.path.join(folder, "kube")
    return {**kept, **own, "LC_ALL": "C"}


class PrivateFolder:
    """A folder that only we may enter, and the shell that removes it should we be killed."""

    def __init__(self, path: str, reaper: subprocess.Popen) -> None:
        self.path = path
        self._reaper = reaper

    def watch(self, group: Optional[int]) -> None:
        """Name the process group that must end with us; None names none."""
        try:
            self._reaper.stdin.write(b"%s\n" % (b"" if group is None else b"%d" % group))
            self._reaper.stdin.flush()
        except OSError:  # somebody ended the shell; the folder is still removed at the regular end
            pass

    def write(self, name: str, text: str) -> str:
        """A file that only we may read; returns its path."""
        path = os.path.join(self.path, name)
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as handle:
            handle.write(text)
        return path

    def forget(self, *names: str) -> None:
        """Remove what is there under these names."""
        for name in names:
            shutil.rmtree(os.path.join(self.path, name), ignore_errors=True)

    def close(self) -> None:
        """Remove the folder and dismiss the shell."""
        shutil.rmtree(self.path, ignore_errors=True)
        with contextlib.suppress(OSError):
            self._reaper.stdin.close()
        try:
            self._reaper.wait(10)
        except subprocess.TimeoutExpired:
            self._reaper.kill()
            self._reaper.wait()


@contextlib.contextmanager
def private_folder(parent: str = "") -> Iterator[PrivateFolder]:
    """A folder below `parent` (default: in memory where that is possible), gone afterwards whatever happens.

    Raises:
        BadInput: `parent` is no folder that we may write to.
    """
    where = parent or (_MEMORY if _usable(_MEMORY) else tempfile.gettempdir())
    try:
        path = tempfile.mkdtemp(prefix=_PREFIX, dir=where)  # made 0700
    except OSError as exc:
        raise BadInput("%s: no temporary folder can be made there: %s" % (where, exc.strerror)) from exc
    try:
        reaper = subprocess.Popen(
            ["/bin/sh", "-c", _REAPER, "sh", path],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
        )
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)
        raise
    made = PrivateFolder(path, reaper)
    try:
        yield made
    finally:
        made.close()


def _usable(folder: str) -> bool:
    """Whether it is a folder for everybody's temporary files, and we may write to it."""
    try:
        mode = os.stat(folder).st_mode
    except OSError:
        return False
    return stat.S_ISDIR(mode) and bool(mode & stat.S_ISVTX) and os.access(folder, os.W_OK | os.X_OK)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Have SIGTERM and SIGHUP raise `Interrupted`, so that every `finally` is run."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set handlers, and only it is interrupted
        return

    def interrupt(number: int, _frame: Any) -> None:
        raise Interrupted(number)

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    except Interrupted as exc:
        _put_back(before)
        os.kill(os.getpid(), exc.number)  # now as it would have been without us
        raise RecoveryError("interrupted by signal %d" % exc.number, "run again: what is done stays done") from exc
    finally:
        _put_back(before)


def _put_back(handlers: Mapping[int, Any]) -> None:
    for number, handler in handlers.items():
        signal.signal(number, handler if handler is not None else signal.SIG_DFL)


def helms_at(release: str, program: str, proc: str = "/proc") -> list[int]:
    """Process IDs of helm commands on this machine that name `release`."""
    names = {"helm", os.path.basename(program)}
    found = []
    for entry in filter(str.isdigit, os.listdir(proc) if os.path.isdir(proc) else []):
        try:
            with open(os.path.join(proc, entry, "cmdline"), "rb") as handle:
                words = handle.read().decode("utf-8", "replace").split("\0")
        except OSError:  # it has ended meanwhile
            continue
        if os.path.basename(words[0]) in names and release in words[1:]:
            found.append(int(entry))
    return sorted(found)


def _attended(
    child: subprocess.Popen, stdin: bytes, until: float, tick: Optional[Callable[[], None]], interval: float
) -> Ended:
    """Wait for the end, the deadline included."""
    given: Optional[bytes] = stdin
    while True:
        left = until - time.monotonic()
        if left <= 0:
            stdout, stderr = _end(child)
            return Ended(child.returncode, _text(stdout), _text(stderr), timed_out=True)
        try:
            stdout, stderr = child.communicate(given, timeout=min(interval, left))
            return Ended(child.returncode, _text(stdout), _text(stderr))
        except subprocess.TimeoutExpired:
            given = None  # it goes on with what it was given first
        if tick is not None:
            try:
                tick()
            except RecoveryError:  # progress is a courtesy: what helm does decides
                pass


def _end(child: subprocess.Popen) -> tuple[bytes, bytes]:
    """Ask it to end, and end its whole group when it does not; returns what it said."""
    for number, seconds in ((signal.SIGTERM, _GRACE), (signal.SIGKILL, _GRACE)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, number)
        try:
            return child.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            continue
        except ValueError:  # its pipes are closed already
            child.wait(seconds)
            break
    return b"", b""


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
