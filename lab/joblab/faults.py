# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults as commands: what breaks in a cluster, each with its undo. Demo, tests and chaos use the same ones.

A fault is a row of FAULTS: where it can happen, the function that makes it happen on one host, and the fault that
takes it back. A function raises LabError if the fault did not happen.
"""

from __future__ import annotations

import enum
import json
import re
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from . import command, podman, power, processes, ssh
from . import host as machine
from .errors import LabError
from .instance import HEAD, NODES, Instance

SPOOL = "/var/spool/slurmd"
#: Slurm's own reasons for taking a node out of service (Slurm 24.11), by the names that lab/fault takes.
SLURM_REASONS = {
    "kill_task_failed": "Kill task failed",
    "batch_job_complete_failure": "batch job complete failure",
    "prolog_error": "Prolog error",
    "job_env_setup_error": "Job env setup error",
    "epilog_error": "Epilog error",
    "prolog_epilog_failure": "Prolog/Epilog failure",
    "duplicate_jobid": "Duplicate jobid",
    "not_responding": "Not responding",
    "resume_timeout_reached": "ResumeTimeout reached",
    "low_sockets": "Low socket*core*thread count",
    "low_cpus": "Low CPUs",
    "low_tmpdisk": "Low TmpDisk",
    "low_memory": "Low RealMemory (reported:1900 < 100.00% of configured:2000)",
    "low_gres": "gres/gpu count reported lower than configured (0 < 8)",
}
#: With these Slurm does not drain a node, it sets it down.
_DOWN_REASONS = ("Not responding", "ResumeTimeout reached")
PERSON = "carol"
PERSONS_REASON = "flaky power supply, ticket 4711"
_SLURM_SECONDS = 20
_SERVICE = re.compile(r"^[a-z][a-z0-9@._-]*$")


class Where(enum.Enum):
    """Hosts that a fault can happen on."""

    NODE = "compute nodes"
    HEAD = "the head"
    ANY = "any host"


@dataclass(frozen=True)
class Options:
    """What a fault may want to know besides the host."""

    job: int | None = None
    step: str | None = None
    reason: str | None = None
    down_seconds: float = 2.0
    service: str | None = None
    percent: int = 30


@dataclass(frozen=True)
class Fault:
    """One kind of fault; ``undo`` is the kind that takes it back, none where it passes by itself."""

    summary: str
    where: Where
    inflict: Callable[[Instance, str, Options], None]
    undo: str | None = None


def inflict(instance: Instance, kind: str, hosts: Sequence[str], options: Options) -> None:
    """Make a fault happen on hosts, side by side. Raises LabError if it is unknown there, or did not happen."""
    if kind not in FAULTS:
        raise LabError(f"No fault {kind!r}; lab/fault --list tells all")
    fault = FAULTS[kind]
    targets = list(hosts) or ([HEAD] if fault.where is Where.HEAD else [])
    if not targets:
        raise LabError(f"{kind} needs a host: {kind} {' '.join(NODES)}")
    for host in targets:
        check_place(instance, kind, host)
    with ThreadPoolExecutor(max_workers=len(targets)) as pool:
        list(pool.map(lambda host: fault.inflict(instance, host, options), targets))


def check_place(instance: Instance, kind: str, host: str) -> None:
    """Raises LabError if a fault of this kind cannot happen on this host."""
    where = FAULTS[kind].where
    instance.known(host)
    if (where is Where.NODE and host == HEAD) or (where is Where.HEAD and host != HEAD):
        raise LabError(f"{kind} happens on {where.value}, not on {host}")


def listing() -> str:
    """All kinds, one line each, and Slurm's own reasons."""
    lines = []
    for kind, fault in FAULTS.items():
        undo = f"; undo: {fault.undo}" if fault.undo else ""
        lines.append(f"{kind:18} {fault.summary} ({fault.where.value}{undo})")
    lines += ["", "Reasons of Slurm's own for drain --reason:"]
    lines += [f"{name:26} {text}" for name, text in SLURM_REASONS.items()]
    return "\n".join(lines)


# Power and processes


def _power_off(instance: Instance, host: str, _options: Options) -> None:
    power.power_off(instance, host)


def _power_on(instance: Instance, host: str, _options: Options) -> None:
    power.power_on(instance, host)


def _power_cycle(instance: Instance, host: str, options: Options) -> None:
    power.power_off(instance, host)
    time.sleep(options.down_seconds)
    power.power_on(instance, host)


def _reboot(instance: Instance, host: str, _options: Options) -> None:
    ssh.run(instance, host, ["systemctl", "--no-block", "reboot"])


def _freeze(instance: Instance, host: str, _options: Options) -> None:
    if power.power_state(instance, host) is power.Power.OFF:
        raise LabError(f"{host} is off")
    power.freeze(instance, host)


def _thaw(instance: Instance, host: str, _options: Options) -> None:
    power.thaw(instance, host)


# Network


def _cut_network(instance: Instance, host: str, _options: Options) -> None:
    command.run(["ip", "link", "set", "dev", _cable(instance, host), "down"])


def _restore_network(instance: Instance, host: str, _options: Options) -> None:
    command.run(["ip", "link", "set", "dev", _cable(instance, host), "up"])


def _lose_packets(instance: Instance, host: str, options: Options) -> None:
    """So many of the packets that the host sends are lost at the switch, chosen by chance."""
    if not 0 < options.percent <= 100:
        raise LabError("How many? --percent 1 to 100")
    _keep_packets(instance, host, options)
    rules = _LOSS.format(table=_loss_table(instance, host), cable=_cable(instance, host), percent=options.percent)
    command.run(["nft", "-f", "-"], stdin=rules)


def _keep_packets(instance: Instance, host: str, _options: Options) -> None:
    command.run(["nft", "delete", "table", "netdev", _loss_table(instance, host)], check=False)


def forget_losses(instance: Instance) -> None:
    """Remove what lost packets of hosts that are gone."""
    if machine.has_command("nft"):
        for name in instance.hosts:
            _keep_packets(instance, name, Options())


def _loss_table(instance: Instance, host: str) -> str:
    return f"{instance.name}-{host}".replace("-", "_")


# On this machine's end of the cable: the lab's hosts bring no rules of their own.
_LOSS = """table netdev {table} {{
    chain loss {{
        type filter hook ingress device "{cable}" priority 0;
        numgen random mod 100 < {percent} drop
    }}
}}
"""


def _inside(instance: Instance, host: str) -> list[str]:
    """What runs a command of this machine in a host's network."""
    alive = processes.pids(podman.group(instance, host))
    if not alive:
        raise LabError(f"{host} is off")
    return ["nsenter", f"--net=/proc/{alive[0]}/ns/net"]


def _cable(instance: Instance, host: str) -> str:
    """Name of the interface on this machine that is the other end of a host's eth0."""
    show = [*_inside(instance, host), "ip", "-json", "link", "show", "dev", "eth0"]
    (interface,) = json.loads(command.run(show).stdout)
    for candidate in json.loads(command.run(["ip", "-json", "link", "show", "master", instance.name]).stdout):
        if candidate.get("ifindex") == interface["link_index"]:
            return candidate["ifname"]
    raise LabError(f"The network interface of {host} is not on the lab's bridge")


# Services


def _service(verb: str, fixed: str | None = None) -> Callable[[Instance, str, Options], None]:
    """A fault that is one systemctl command on a service: a fixed one, or that of --service."""

    def act(instance: Instance, host: str, options: Options) -> None:
        name = fixed or options.service
        if not name or not _SERVICE.match(name):
            raise LabError("Which service? For example --service slurmctld")
        ssh.run(instance, host, ["systemctl", *verb.split(), name], timeout=60)

    return act


_KILL = "kill --kill-whom=main --signal=KILL"
_PAUSE = "kill --kill-whom=all --signal=STOP"
_RESUME = "kill --kill-whom=all --signal=CONT"

# Slurm's jobs and files

_KILL_STEPS = r"""
killed=0
for pid in $(pgrep -x slurmstepd); do
    title=$(tr '\0' ' ' < /proc/$pid/cmdline)
    case $title in
    slurmstepd:\ \[{pattern}\]*) kill -9 "$pid" && killed=$((killed + 1)) ;;
    esac
done
[ $killed -gt 0 ] || {{ echo "no slurmstepd of that job runs here" >&2; exit 1; }}
"""

_LEAVE_FILES = """
set -e
umask 077
mkdir -p {spool}/pmix.{job}.{step}
chown alice: {spool}/pmix.{job}.{step}
rm -f {spool}/stepd.slurm.pmix.{job}.{step}
python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("{spool}/stepd.slurm.pmix.{job}.{step}")'
"""

_REMOVE_FILES = "rm -rf {spool}/pmix.{job}.* {spool}/stepd.slurm.pmix.{job}.*"


def _kill_slurmstepd(instance: Instance, host: str, options: Options) -> None:
    job = "*" if options.job is None else str(options.job)
    script = _KILL_STEPS.format(pattern=f"{job}.{_step(options, '*')}")
    ssh.run(instance, host, ["sh", "-s"], stdin=script)


def _leave_pmix_files(instance: Instance, host: str, options: Options) -> None:
    script = _LEAVE_FILES.format(spool=SPOOL, job=_job(options), step=_step(options, "0"))
    ssh.run(instance, host, ["sh", "-s"], stdin=script)


def _remove_pmix_files(instance: Instance, host: str, options: Options) -> None:
    ssh.run(instance, host, ["sh", "-s"], stdin=_REMOVE_FILES.format(spool=SPOOL, job=_job(options)))


def _job(options: Options) -> int:
    if options.job is None:
        raise LabError("Which job? For example --job 17")
    return options.job


def _step(options: Options, default: str) -> str:
    step = options.step or default
    if step != "*" and not step.isalnum():
        raise LabError(f"Not a step: {step!r} (a number, batch or extern)")
    return step


# Slurm's node states


def reason_text(reason: str | None) -> str:
    """The text for --reason: one of Slurm's own by its name here, or any text as it is."""
    return SLURM_REASONS.get(reason or "kill_task_failed", reason or "")


def _drain(instance: Instance, host: str, options: Options) -> None:
    """As SlurmUser, who is also who Slurm itself signs with."""
    text = reason_text(options.reason)
    state = "down" if text.startswith(_DOWN_REASONS) else "drain"
    _update(instance, "slurm", host, f"state={state}", f"reason={text}")


def _drain_person(instance: Instance, host: str, options: Options) -> None:
    _update(instance, PERSON, host, "state=drain", f"reason={options.reason or PERSONS_REASON}")


def _down_person(instance: Instance, host: str, options: Options) -> None:
    _update(instance, PERSON, host, "state=down", f"reason={options.reason or PERSONS_REASON}")


def _resume(instance: Instance, host: str, _options: Options) -> None:
    _update(instance, "slurm", host, "state=resume")


def _update(instance: Instance, user: str, node: str, *settings: str) -> None:
    update = ["timeout", "15", "scontrol", "update", f"nodename={node}", *settings]
    ssh.run(instance, HEAD, ["runuser", "-u", user, "--", *update], timeout=_SLURM_SECONDS)


FAULTS = {
    "power_off": Fault("power is gone at once; it stays so", Where.ANY, _power_off, "power_on"),
    "power_on": Fault("power is back; the host boots", Where.ANY, _power_on),
    "power_cycle": Fault("power is gone for --down seconds (default 2), then the host boots", Where.ANY, _power_cycle),
    "reboot": Fault("somebody types systemctl reboot", Where.ANY, _reboot),
    "freeze": Fault("the host stands still: TCP connects, nothing answers", Where.ANY, _freeze, "thaw"),
    "thaw": Fault("a frozen host goes on", Where.ANY, _thaw),
    "cut_network": Fault("the network cable is out (until the next boot)", Where.ANY, _cut_network, "restore_network"),
    "restore_network": Fault("the network cable is in", Where.ANY, _restore_network),
    "lose_packets": Fault(
        "--percent (default 30) of the packets it sends are lost", Where.ANY, _lose_packets, "keep_packets"
    ),
    "keep_packets": Fault("no packet is lost any more", Where.ANY, _keep_packets),
    "stop_slurmd": Fault("slurmd is stopped; its jobs run on", Where.NODE, _service("stop", "slurmd"), "start_slurmd"),
    "start_slurmd": Fault("slurmd is started", Where.NODE, _service("start", "slurmd")),
    "kill_slurmd": Fault(
        "slurmd dies (SIGKILL); its jobs run on", Where.NODE, _service(_KILL, "slurmd"), "start_slurmd"
    ),
    "stop_kubelet": Fault("the kubelet is stopped", Where.NODE, _service("stop", "kubelet"), "start_kubelet"),
    "start_kubelet": Fault("the kubelet is started", Where.NODE, _service("start", "kubelet")),
    "kill_slurmstepd": Fault(
        "slurmstepd dies (SIGKILL), its tasks live on; of --job and --step, default all", Where.NODE, _kill_slurmstepd
    ),
    "leave_pmix_files": Fault(
        "files as a dead step of --job leaves them in the spool (--step, default 0)",
        Where.NODE,
        _leave_pmix_files,
        "remove_pmix_files",
    ),
    "remove_pmix_files": Fault("the PMIx files of --job are removed", Where.NODE, _remove_pmix_files),
    "drain": Fault(
        "Slurm takes the node out of service, with one of its own reasons: --reason NAME or text",
        Where.NODE,
        _drain,
        "resume",
    ),
    "drain_person": Fault(
        "an administrator drains the node; --reason, or a ticket", Where.NODE, _drain_person, "resume"
    ),
    "down_person": Fault(
        "an administrator sets the node down; --reason, or a ticket", Where.NODE, _down_person, "resume"
    ),
    "resume": Fault("the node is back in service", Where.NODE, _resume),
    "stop_service": Fault("--service is stopped", Where.ANY, _service("stop"), "start_service"),
    "start_service": Fault("--service is started", Where.ANY, _service("start")),
    "restart_service": Fault("--service is restarted", Where.ANY, _service("restart")),
    "kill_service": Fault("the main process of --service dies (SIGKILL)", Where.ANY, _service(_KILL), "start_service"),
    "pause_service": Fault("--service stands still (SIGSTOP)", Where.ANY, _service(_PAUSE), "resume_service"),
    "resume_service": Fault("a paused --service goes on", Where.ANY, _service(_RESUME)),
    "hang_slurmctld": Fault("slurmctld stands still", Where.HEAD, _service(_PAUSE, "slurmctld"), "continue_slurmctld"),
    "continue_slurmctld": Fault("slurmctld goes on", Where.HEAD, _service(_RESUME, "slurmctld")),
    "stop_slurmctld": Fault("slurmctld is stopped", Where.HEAD, _service("stop", "slurmctld"), "start_slurmctld"),
    "start_slurmctld": Fault("slurmctld is started", Where.HEAD, _service("start", "slurmctld")),
}
