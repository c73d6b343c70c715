# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The commands lab/up, lab/down, lab/status, lab/ssh, lab/slurm-conf and lab/fault."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence

from . import faults, host, instance, lifecycle, processes, progress, slurm, ssh, status
from .errors import LabError


def main(command: Callable[[Sequence[str]], int]) -> None:
    """Run one command; errors that a person can act on are shown without a traceback.

    Exit codes: the command's, 1 for such an error, 130 when interrupted.
    """
    os.environ["PATH"] = f"{os.environ.get('PATH', '')}:/usr/local/sbin:/usr/sbin:/sbin"  # sudo and cron leave them out
    try:
        sys.exit(command(sys.argv[1:]))
    except LabError as exc:
        print(f"{os.path.basename(sys.argv[0])}: {exc}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("Interrupted. The same command can be run again; lab/down removes all.", file=sys.stderr)
        sys.exit(130)


def up(arguments: Sequence[str]) -> int:
    """lab/up"""
    parser = argparse.ArgumentParser(
        prog="lab/up",
        description="Bring up a real Slurm and Kubernetes cluster in containers on this machine. "
        "LAB_INSTANCE (0 to 9) picks one of several. Run again, it completes and verifies.",
    )
    parser.add_argument("--only", choices=["slurm"], help="leave Kubernetes and the registry out")
    parser.add_argument("--check", action="store_true", help="only tell whether this machine can run the lab")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="other value in slurm.conf")
    parser.add_argument("--verify-cache", action="store_true", help="compare checksums of all cached files")
    options = parser.parse_args(arguments)
    lab = instance.from_environment()
    if options.check:
        host.check(lab)
        processes.check_owner(lab)
        progress.note("This machine can run the lab")
        return 0
    lifecycle.up(lab, with_kubernetes=options.only != "slurm", settings=options.set, verify_cache=options.verify_cache)
    return 0


def down(arguments: Sequence[str]) -> int:
    """lab/down"""
    parser = argparse.ArgumentParser(
        prog="lab/down",
        description="Remove the lab from this machine: processes, network, files. The cache stays.",
    )
    parser.parse_args(arguments)
    host.check_root("lab/down")
    lifecycle.down(instance.from_environment())
    return 0


def show_status(arguments: Sequence[str]) -> int:
    """lab/status"""
    parser = argparse.ArgumentParser(prog="lab/status", description="Tell what is up. Exit code 0: everything is.")
    parser.parse_args(arguments)
    report = status.report(instance.from_environment())
    print("\n".join(report.lines))
    return 0 if report.healthy else 1


def open_shell(arguments: Sequence[str]) -> int:
    """lab/ssh"""
    parser = argparse.ArgumentParser(prog="lab/ssh", description="Run a command, or a shell, on a host of the lab.")
    parser.add_argument("host", choices=instance.HOSTS)
    parser.add_argument("command", nargs=argparse.REMAINDER, help="passed to the remote shell, as ssh does")
    options = parser.parse_args(arguments)
    argv = ssh.argv(instance.from_environment(), options.host, " ".join(options.command))
    if sys.stdin.isatty() and not options.command:
        argv.insert(1, "-t")
    os.execvp(argv[0], argv)


def configure_slurm(arguments: Sequence[str]) -> int:
    """lab/slurm-conf"""
    parser = argparse.ArgumentParser(
        prog="lab/slurm-conf",
        description="Change settings in slurm.conf on all hosts and have Slurm read it, for example ReturnToService=0.",
    )
    parser.add_argument("setting", nargs="+", metavar="KEY=VALUE", help="KEY= brings the lab's default back")
    options = parser.parse_args(arguments)
    lab = instance.from_environment()
    slurm.set_configuration(lab, slurm.parse_settings(options.setting))
    slurm.push_configuration(lab)
    return 0


def make_fault(arguments: Sequence[str]) -> int:
    """lab/fault"""
    parser = argparse.ArgumentParser(
        prog="lab/fault",
        description="Break something in the lab, or mend it. lab/fault --list tells all kinds.",
    )
    parser.add_argument("kind", nargs="?")
    parser.add_argument("host", nargs="*")
    parser.add_argument("--list", action="store_true", help="tell all kinds, their undo, and Slurm's own reasons")
    parser.add_argument("--job", type=int, help="number of a Slurm job")
    parser.add_argument("--step", help="step of the job: a number, batch or extern")
    parser.add_argument("--reason", help="reason of a drain: a name from --list, or text")
    parser.add_argument(
        "--down", type=float, default=faults.Options.down_seconds, metavar="SECONDS", help="power is gone"
    )
    parser.add_argument("--service", help="a systemd service, such as slurmctld, mariadb, kube-apiserver")
    parser.add_argument("--percent", type=int, default=faults.Options.percent, help="of the packets are lost")
    options = parser.parse_intermixed_args(arguments)
    if options.list:
        print(faults.listing())
        return 0
    if not options.kind:
        parser.error("which kind? lab/fault --list tells all")
    wanted = faults.Options(options.job, options.step, options.reason, options.down, options.service, options.percent)
    faults.inflict(instance.from_environment(), options.kind, options.host, wanted)
    return 0
