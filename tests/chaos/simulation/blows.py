# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is done to a simulated site, as data: faults of nodes and jobs, trouble of what recovery stands on, persons."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Callable

from . import ledger
from .adapters import DOWN, HUNG, UP
from .site import Site

_REPORTS, _REPORTED = 8, 40.0  # times that an agent reports, and seconds between them


@dataclass(frozen=True)
class Blow:
    """Something that happens.

    Attributes:
        at: seconds after the story began.
        what: a name of `BLOWS`.
        target: the node, or the job's id, where it is about one.
        seconds: how long it lasts, where it ends by itself.
    """

    at: float
    what: str
    target: str = ""
    seconds: float = 0.0

    def __str__(self) -> str:
        lasting = " for %g s" % self.seconds if self.seconds else ""
        return "%s %s at %g s%s" % (self.what, self.target, self.at, lasting)


def strike(site: Site, blow: Blow) -> None:
    """Let it happen now."""
    BLOWS[blow.what](site, blow)


# ---- nodes and jobs ------------------------------------------------------------------------------------------------


def _freeze(site: Site, blow: Blow) -> None:
    _broken_until_boot(site, blow.target)
    site.hardware.freeze(blow.target)


def _power_loss(site: Site, blow: Blow) -> None:
    """It stays off, or comes back by itself."""
    _broken_until_boot(site, blow.target)
    site.hardware.set_power(blow.target, "Off")
    if blow.seconds:
        site.clock.after(blow.seconds, lambda: site.hardware.set_power(blow.target, "On"))


def _cut(site: Site, blow: Blow) -> None:
    machine = site.hardware.machines[blow.target]
    site.break_(blow.target, lambda: machine.reachable)
    site.hardware.cut(blow.target, True)
    site.clock.after(blow.seconds, lambda: site.hardware.cut(blow.target, False))


def _switch_gone(site: Site, blow: Blow) -> None:
    """No node can be reached, and every one of them is well."""
    for name in site.hardware.machines:
        site.hardware.cut(name, True)
        site.clock.after(blow.seconds, lambda name=name: site.hardware.cut(name, False))


def _kill_slurmd(site: Site, blow: Blow) -> None:
    machine = site.hardware.machines[blow.target]
    site.break_(blow.target, lambda: machine.slurmd)
    site.hardware.kill_slurmd(blow.target)


def _kill_kubelet(site: Site, blow: Blow) -> None:
    machine = site.hardware.machines[blow.target]
    if machine.up and machine.kubelet:
        site.break_(blow.target, lambda: machine.kubelet is True)
        site.hardware.set_kubelet(blow.target, False)


def _sick(site: Site, blow: Blow) -> None:
    """An agent on the node says that its kernel has a fault; a reboot repairs it."""
    if site.hardware.machines[blow.target].up:
        _broken_until_boot(site, blow.target)
        site.hardware.machines[blow.target].sick = True
        site.kubernetes.report_sick(blow.target)


def _drained(site: Site, blow: Blow) -> None:
    """Slurm drains it after an error; a reboot repairs it, once its jobs have ended."""
    _broken_until_boot(site, blow.target, fatal=False)
    site.ctld.drain_itself(blow.target, "Kill task failed")


def _gpu_fault(site: Site, blow: Blow) -> None:
    """A GPU needs a reset, and the node's agent says so again and again, also when it is long repaired."""
    _break_gpu(site, blow, False)


def _gpu_stuck(site: Site, blow: Blow) -> None:
    """A GPU needs a reset that does not help; a reboot does."""
    _break_gpu(site, blow, True)


def _break_gpu(site: Site, blow: Blow, stuck: bool) -> None:
    name = blow.target
    machine = site.hardware.machines[name]
    if not machine.up:
        return
    site.break_(name, lambda: machine.gpu.recovery == "None" and machine.up, boots=1, fatal=False, resets=1)
    site.hardware.break_gpu(name, "xid119", stuck)
    for number in range(_REPORTS):
        site.clock.after(number * _REPORTED, lambda boot_id=machine.boot_id: site.report(name, "xid119", boot_id))


def _lose_step_daemon(site: Site, blow: Blow) -> None:
    job = int(blow.target)
    nodes = site.ctld.jobs[job].nodes
    if nodes:
        run = next(run for run in reversed(site.ctld.runs) if run.job == job)
        site.break_(blow.target, lambda: run.until is not None, boots=0)
        site.ctld.lose_step_daemon(job, nodes[0])


def _broken_until_boot(site: Site, name: str, fatal: bool = True) -> None:
    machine = site.hardware.machines[name]
    boot = machine.boot_id
    site.break_(name, lambda: machine.up and machine.boot_id != boot and not machine.frozen, fatal=fatal)


# ---- what recovery stands on ---------------------------------------------------------------------------------------


def _slurmctld(state: str) -> Callable[[Site, Blow], None]:
    def blow_of(site: Site, blow: Blow) -> None:
        site.slurm.state = state
        site.clock.after(blow.seconds, lambda: setattr(site.slurm, "state", UP))

    return blow_of


def _api(state: str) -> Callable[[Site, Blow], None]:
    def blow_of(site: Site, blow: Blow) -> None:
        site.api.state = state
        site.clock.after(blow.seconds, lambda: setattr(site.api, "state", UP))

    return blow_of


def _budget(site: Site, blow: Blow) -> None:
    """A disruption budget allows no eviction for a while."""
    site.kubernetes.budget = True
    site.clock.after(blow.seconds, lambda: setattr(site.kubernetes, "budget", False))


def _ledger(trouble: str) -> Callable[[Site, Blow], None]:
    def blow_of(site: Site, blow: Blow) -> None:
        site.ledger.trouble = trouble
        site.clock.after(blow.seconds, lambda: setattr(site.ledger, "trouble", ""))

    return blow_of


def _bmc(**changes: object) -> Callable[[Site, Blow], None]:
    def blow_of(site: Site, blow: Blow) -> None:
        before = site.hardware.bmcs[blow.target]
        site.hardware.bmcs[blow.target] = replace(before, **changes)
        if blow.seconds:
            site.clock.after(blow.seconds, lambda: site.hardware.bmcs.update({blow.target: before}))

    return blow_of


def _foreign_bmc(site: Site, blow: Blow) -> None:
    """Its cable leads to another node's BMC."""
    other = next(name for name in site.hardware.bmcs if name != blow.target)
    site.hardware.bmcs[blow.target] = replace(site.hardware.bmcs[other])


def _head(site: Site, blow: Blow) -> None:
    """The controller's host goes down between two looks, and starts again."""
    controller = site.controllers[0]
    controller.down = True
    site.clock.after(blow.seconds, controller.start)


def _second_controller(site: Site, _blow: Blow) -> None:
    site.second_controller()


def _storm(site: Site, blow: Blow) -> None:
    """The rulebook gets the same fault again and again."""
    site.storm(blow.target, int(blow.seconds))


def _restore(site: Site, blow: Blow) -> None:
    """A backup is made; later it is put in the ledger's place, the service starts, and a person approves it."""
    _restore_for_good(site, blow)
    site.clock.after(blow.seconds + 60.0, site.approve)


def _restore_for_good(site: Site, blow: Blow) -> None:
    """The same, and nobody approves it."""
    backup = site.ledger.backup()

    def put_back() -> None:
        site.ledger.restore(backup)
        for controller in site.controllers:
            controller.start()

    site.clock.after(blow.seconds, put_back)


# ---- persons -------------------------------------------------------------------------------------------------------


def _late_drain(site: Site, blow: Blow) -> None:
    """Whoever sends the next drain is killed meanwhile, and the command arrives all the same, later."""
    site.slurm.late = blow.seconds


def _stop(site: Site, blow: Blow) -> None:
    site.set_stop()
    site.clock.after(blow.seconds, site.lift_stop)


def _person_drains(site: Site, blow: Blow) -> None:
    site.drain_by_person(blow.target, "alice looks at the fans")


def _person_cordons(site: Site, blow: Blow) -> None:
    site.cordon_by_person(blow.target)


def _person_uncordons(site: Site, blow: Blow) -> None:
    site.uncordon_by_person(blow.target)


def _person_switches_on(site: Site, blow: Blow) -> None:
    """At the node itself."""
    site.hardware.set_power(blow.target, "On")


def _node_readded(site: Site, blow: Blow) -> None:
    """A person deletes the Node object; its kubelet registers it again, once it lives."""
    site.delete_node_by_person(blow.target)


BLOWS: dict[str, Callable[[Site, Blow], None]] = {
    "freeze": _freeze,
    "power_loss": _power_loss,
    "cut": _cut,
    "switch_gone": _switch_gone,
    "kill_slurmd": _kill_slurmd,
    "drained": _drained,
    "gpu_fault": _gpu_fault,
    "gpu_stuck": _gpu_stuck,
    "lose_step_daemon": _lose_step_daemon,
    "slurmctld_down": _slurmctld(DOWN),
    "slurmctld_hung": _slurmctld(HUNG),
    "ledger_gone": _ledger(ledger.GONE),
    "ledger_read_only": _ledger(ledger.READ_ONLY),
    "ledger_full": _ledger(ledger.FULL),
    "ledger_slow": _ledger(ledger.SLOW),
    "bmc_slow": _bmc(slow=25.0),
    "bmc_deaf": _bmc(deaf=True),
    "bmc_silent": _bmc(silent=True),
    "bmc_foreign": _foreign_bmc,
    "head_killed": _head,
    "second_controller": _second_controller,
    "storm": _storm,
    "restore": _restore,
    "restore_for_good": _restore_for_good,
    "late_drain": _late_drain,
    "stop": _stop,
    "person_drains": _person_drains,
    "kill_kubelet": _kill_kubelet,
    "sick": _sick,
    "api_down": _api(DOWN),
    "api_hung": _api(HUNG),
    "budget": _budget,
    "person_cordons": _person_cordons,
    "person_uncordons": _person_uncordons,
    "person_switches_on": _person_switches_on,
    "node_readded": _node_readded,
}
POD_NODE_FAULTS = ("kill_kubelet", "sick")
POD_TROUBLES = ("api_down", "api_hung", "budget", "person_cordons", "person_uncordons", "node_readded")
NODE_FAULTS = ("freeze", "freeze", "power_loss", "cut", "kill_slurmd", "drained", "gpu_fault", "gpu_stuck")
TROUBLES = (
    "slurmctld_down", "slurmctld_hung", "ledger_gone", "ledger_read_only", "ledger_full", "ledger_slow", "bmc_slow",
    "bmc_deaf", "bmc_silent", "bmc_foreign", "head_killed", "second_controller", "storm", "stop", "person_drains",
    "restore", "late_drain",
)  # fmt: skip
