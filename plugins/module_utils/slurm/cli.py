# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Slurm's commands with a deadline for each: `SlurmCli`, and `AsyncSlurmCli` for event loops.

Both have the same methods; those of `AsyncSlurmCli` are awaited. A command that misses its deadline is killed with
its whole process group, and `TimedOut` says that nothing is known. Errors are those of `commands.check`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import (
    BadInput,
    RecoveryError,
    TimedOut,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm import queue
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.commands import (
    Argv,
    Commands,
    Operation,
    Output,
)

DEFAULT_TIMEOUT = 10.0
# A killed command ends at once, unless the kernel holds it (a file system that hangs); nobody waits for that.
_REAP_SECONDS = 2.0

# Settings of the caller that would change what the commands select or print (squeue(1), sinfo(1), sacct(1),
# scontrol(1): INPUT ENVIRONMENT VARIABLES).
_FOREIGN_SETTINGS = ("SQUEUE_", "SINFO_", "SACCT_", "SCONTROL_", "SACCTMGR_", "SLURM_CLUSTERS", "SLURM_BITSTR_LEN",
                     "SLURM_JSON", "SLURM_YAML", "SLURM_DEBUG_FLAGS", "SLURM_TIME_FORMAT")
_OURS = {"LC_ALL": "C", "TZ": "UTC", "SLURM_TIME_FORMAT": "%s", "SLURM_BITSTR_LEN": "0"}


def environment(caller: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of Slurm's commands: the caller's, without what would change their answers."""
    kept = {name: value for name, value in caller.items() if not name.startswith(_FOREIGN_SETTINGS)}
    return {**kept, **_OURS}


class Slurm:
    """The methods of both adapters.

    Args:
        bin_dir: where the commands are; default PATH.
        timeout: seconds for each command.
        conf: slurm.conf, where it is not the one that the commands find by themselves.
    """

    def __init__(
        self, bin_dir: str | None = None, timeout: float = DEFAULT_TIMEOUT, conf: str | None = None
    ) -> None:
        self._bin_dir = bin_dir or None
        self._timeout = timeout
        self._conf = conf or None
        self._commands = Commands()

    def _run(self, operation: Operation[Any]) -> Any:
        raise NotImplementedError

    def within(self, seconds: float) -> Slurm:
        """Return the same adapter with a deadline of at most `seconds` a command."""
        other = type(self)(self._bin_dir, min(seconds, self._timeout), self._conf)
        other._commands = self._commands
        return other

    # Reading

    def nodes(self, names: Iterable[str] | None = None, missing_ok: bool = False) -> Any:
        """Return `Node`s by one call; all nodes for None. A name that Slurm does not know is `Absent`, or left out."""
        return self._run(self._commands.nodes(names, missing_ok))

    def node_groups(self) -> Any:
        """Return every node in `NodeGroup`s of the same state and reason, with every flag: the cheapest look."""
        return self._run(self._commands.node_groups())

    def node_states(self) -> Any:
        """Return a `NodeState` of every node, of the same look."""
        return self._run(self._commands.node_states())

    def node_events(self, names: Iterable[str], since: int) -> Any:
        """Return the `NodeEvent`s that slurmdbd recorded of nodes since a time."""
        return self._run(self._commands.node_events(names, since))

    def jobs(self, ids: Iterable[Any], missing_ok: bool = False) -> Any:
        """Return `Job`s by one call (text: one a job). An id names a job, an array, a task or a component.

        A job that slurmctld has forgotten (MinJobAge) is `Absent`, or left out.
        """
        return self._run(self._commands.jobs(ids, missing_ok))

    def jobs_on(self, nodes: Iterable[str]) -> Any:
        """Return the `Job`s that run, are suspended or complete on any of the nodes."""
        return self._run(self._commands.jobs_on(nodes))

    def job_states(
        self, ids: Iterable[Any] | None = None, nodes: Iterable[str] | None = None, only_states: bool = False
    ) -> Any:
        """Return `JobState`s of the jobs in the queue, of some jobs (ended ones too), or of jobs on nodes: cheap.

        With `only_states`, slurmctld (24.05 and later) answers without its job lock, and gives ids and states only.
        """
        return self._run(self._commands.job_states(ids, nodes, only_states))

    def all_jobs(self, before: queue.Jobs) -> Any:
        """Return `queue.Jobs`: all jobs that slurmctld knows, and which of them changed since the look `before`.

        Their `start_time` is left out: that of a PENDING job is an estimate that changes all the time.
        """
        return self._run(self._commands.all_jobs(before))

    def restarted(self) -> Any:
        """Return the ids of the jobs in the queue that were requeued before."""
        return self._run(self._commands.restarted())

    def accounting(
        self,
        ids: Iterable[Any] | None = None,
        since: int | None = None,
        steps: bool = False,
        nodes: Iterable[str] | None = None,
    ) -> Any:
        """Return `AccountingRecord`s, one for every run of a job: of jobs, since a time, or of what ran on nodes."""
        return self._run(self._commands.accounting(ids, since, steps, nodes))

    def reservations(self) -> Any:
        """Return all `Reservation`s, active ones and those to come."""
        return self._run(self._commands.reservations())

    def submissions(self, uids: Iterable[int], since: int) -> Any:
        """Return `AccountingRecord`s of these users' jobs since a time, with the command that submitted each."""
        return self._run(self._commands.submissions(uids, since))

    def waiting_jobs(self, uid: int) -> Any:
        """Return the pending `Job`s of a user."""
        return self._run(self._commands.waiting_jobs(uid))

    def config(self) -> Any:
        """Return slurmctld's settings by name; one that is not set is missing."""
        return self._run(self._commands.config())

    def ping(self) -> Any:
        """Return the `Controller`s and whether each answers."""
        return self._run(self._commands.ping())

    def admin_level(self, user: str) -> Any:
        """Return a user's AdminLevel in the accounting (`Administrator`, `Operator`, `None`); None without the user."""
        return self._run(self._commands.admin_level(user))

    # Writing

    def update_node(self, names: Iterable[str], state: str, reason: str | None = None) -> Any:
        """Set nodes to DRAIN, DOWN or RESUME by one call."""
        return self._run(self._commands.update_node(names, state, reason))

    def reboot_nodes(self, names: Iterable[str]) -> Any:
        """Have slurmd run RebootProgram on nodes as soon as nothing runs there. Slurm says yes for a dead node, too."""
        return self._run(self._commands.reboot_nodes(names))

    def update_job(
        self,
        job: Any,
        start_now: bool = False,
        excluded_nodes: Iterable[str] | None = None,
        admin_comment: str | None = None,
    ) -> Any:
        """Clear a job's begin time, set the nodes it must not get, or the administrator's comment."""
        return self._run(self._commands.update_job(job, start_now, excluded_nodes, admin_comment))

    def accounted_comment(self, job: int) -> Any:
        """Return the administrator's comment of a job in the accounting, None for none."""
        return self._run(self._commands.accounted_comment(job))

    def update_finished_job(self, job: int, admin_comment: str) -> Any:
        """Set the administrator's comment of a job that has ended: slurmctld changes no such job, slurmdbd does."""
        return self._run(self._commands.update_finished_job(job, admin_comment))

    def requeue(self, job: Any) -> Any:
        """Requeue one batch job. Slurm takes a CANCELLED or COMPLETED job too: look at it before."""
        return self._run(self._commands.requeue(job))

    def release(self, job: Any) -> Any:
        """Release one held job."""
        return self._run(self._commands.release(job))

    # Shared by the adapters

    def _program(self, argv: Argv) -> str:
        program = os.path.join(self._bin_dir, argv[0]) if self._bin_dir else shutil.which(argv[0])
        if not program or not os.access(program, os.X_OK):
            raise BadInput(
                "Slurm's command %s is not there: %s" % (argv[0], self._bin_dir or "not in PATH"),
                "install Slurm's client commands, or set bin_dir",
            )
        return program

    @property
    def _environment(self) -> dict[str, str]:
        ours = environment(os.environ)
        return {**ours, "SLURM_CONF": self._conf} if self._conf else ours

    def _timed_out(self, argv: Argv) -> TimedOut:
        return TimedOut(
            "%s did not end within %g s; what it should tell or do is unknown" % (argv[0], self._timeout),
            "check that slurmctld answers (`scontrol ping`)",
            command=list(argv),
            cause="timeout",
        )


class SlurmCli(Slurm):
    """Runs the commands one after another and waits for each."""

    def _run(self, operation: Operation[Any]) -> Any:
        argv = next_argv(operation, None)
        while isinstance(argv, list):
            argv = next_argv(operation, self._call(argv))
        return argv.value

    def _call(self, argv: Argv) -> Output:
        try:
            process = subprocess.Popen(
                [self._program(argv), *argv[1:]],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=self._environment,
                start_new_session=True,
            )
        except OSError as exc:
            raise RecoveryError("cannot run %s: %s" % (argv[0], exc), command=list(argv)) from None
        try:
            stdout, stderr = process.communicate(timeout=self._timeout)
        except subprocess.TimeoutExpired:
            raise self._timed_out(argv) from None
        finally:
            if process.returncode is None:
                _kill_group(process.pid)
                _reap(process)
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
        return Output(argv, process.returncode, stdout, stderr)


class AsyncSlurmCli(Slurm):
    """The same without blocking an event loop; cancelling kills the command."""

    def _run(self, operation: Operation[Any]) -> Any:
        return self._drive(operation)

    async def _drive(self, operation: Operation[Any]) -> Any:
        argv = next_argv(operation, None)
        while isinstance(argv, list):
            argv = next_argv(operation, await self._call(argv))
        return argv.value

    async def _call(self, argv: Argv) -> Output:
        try:
            process = await self._start(argv)
        except OSError as exc:
            raise RecoveryError("cannot run %s: %s" % (argv[0], exc), command=list(argv)) from None
        try:
            stdout, stderr = await asyncio.wait_for(process.communicate(), self._timeout)
        except asyncio.TimeoutError:
            raise self._timed_out(argv) from None
        finally:
            await _end(process)
        return Output(argv, process.returncode, stdout, stderr)

    async def _start(self, argv: Argv) -> asyncio.subprocess.Process:
        """Start a command; where that is cancelled, asyncio would kill it alone, and wait for what it started."""
        starting = asyncio.ensure_future(
            asyncio.create_subprocess_exec(
                self._program(argv),
                *argv[1:],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=self._environment,
                start_new_session=True,
            )
        )
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            await _end(await starting)
            raise


class Result:
    """What an operation returned."""

    def __init__(self, value: Any) -> None:
        self.value = value


def next_argv(operation: Operation[Any], output: Output | None) -> Any:
    """Advance an operation: the argv of its next command (a list), or its `Result`."""
    try:
        return next(operation) if output is None else operation.send(output)
    except StopIteration as stop:
        return Result(stop.value)


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill a command that has not ended; its pipes are read to their end, so that nothing of it stays open."""
    if process.returncode is None:
        _kill_group(process.pid)
        await asyncio.wait((asyncio.ensure_future(process.communicate()),), timeout=_REAP_SECONDS)


def _reap(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_REAP_SECONDS)


def _kill_group(pid: int) -> None:
    """Kill a command and what it started; it leads its own process group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
