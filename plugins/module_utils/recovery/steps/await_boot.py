# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node is back: another boot, and a registration with its scheduler after it."""

from __future__ import annotations

from typing import Any, Optional, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import Conflict, RecoveryError
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes import nodes as kubernetes_nodes
from ansible_collections.mission_control.job_recovery.plugins.module_utils.nodes.shell import NodeAnswer, valid_boot_id
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import plans, waits
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.step import Outcome, Tools, Work
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.steps.common import (
    Answers,
    Plain,
    ask_nodes,
    done,
    failed,
    kubernetes_name,
    over,
    poll,
    recorded_boot_id,
    retry,
    slurm_name,
    slurm_nodes,
    waiting,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.models import Node

LEASE_RENEWED = "lease_renewed"
BOOT_SLACK = 60.0  # seconds: Slurm's BootTime moves within one boot, and clocks differ
_PROBE_DEADLINE = 5.0
_LOOK_AGAIN = 3.0


class AwaitBoot(Plain):
    """A reboot is proved by a well-formed boot ID that is not the one on record; a node that merely came back may
    have the same one (`return_node`), and then its registration is the proof.

    Waits for: `node_registered` (with a later start of slurmd, after a reboot), `kubernetes_node_ready` for a node that
    is in Kubernetes only; failed after `limits.boot_timeout`.
    Proof: boot ID old and new, Slurm's boot_time and slurmd_start_time.
    Remembers: `new_boot_id`; later steps act on this boot only. `lease_renewed`, of a node of Kubernetes: its Lease as
    it was then, which is renewed again before the node gets its pods back.
    """

    name = plans.AWAIT_BOOT

    def act(self, works: Sequence[Work], tools: Tools) -> list[Outcome]:
        """One call of Slurm for all, then probes of those that have registered."""
        answers = Answers(works, tools)
        registered: set[int] = set()
        try:
            poll(lambda: _look(answers, tools, registered))
        except RecoveryError as exc:
            answers.give_error(answers.open, exc)
        for work in answers.open:
            answers.give(_not_yet(work, tools, work.incident in registered))
        return answers.all()


def _look(answers: Answers, tools: Tools, registered: set[int]) -> bool:
    """One look at all that are not back yet; true when it is no use to look again at once."""
    nodes = slurm_nodes(answers.open, tools)
    back = [work for work in answers.open if _has_registered(work, tools, nodes.get(work.incident))]
    registered.update(work.incident for work in back)
    probes = ask_nodes(back, tools, lambda _work: ["probe"], _PROBE_DEADLINE)
    for work in back:
        outcome = _judge(work, tools, nodes.get(work.incident), probes[work.incident])
        if outcome is not None:
            answers.give(outcome)
    # a boot takes longer than anybody should stay; what has registered is only short of its SSH server
    return all(work.incident not in registered or over(work, tools) for work in answers.open)


def _has_registered(work: Work, tools: Tools, node: Optional[Node]) -> bool:
    if not slurm_name(work, tools):
        return True  # its helper tells
    if node is None or not node.registered:
        return False
    before = _start_before(work)
    return before is None or (node.slurmd_start_time or 0) > before


def _judge(work: Work, tools: Tools, node: Optional[Node], probe: NodeAnswer) -> Optional[Outcome]:
    """Done, or None for not yet; only a plain error of the address itself is a failure."""
    if probe.error is not None:
        return failed(work, str(probe.error)) if isinstance(probe.error, Conflict) else None
    boot_id, old = probe.data.get("boot_id"), recorded_boot_id(work)
    if not valid_boot_id(boot_id) or (_is_rebooted(work) and (not old or boot_id == old)):
        return None
    uptime = probe.data.get("uptime")
    booted_at = tools.now() - uptime if isinstance(uptime, (int, float)) else 0.0
    if node is not None and boot_id != old and (node.boot_time or 0) < booted_at - BOOT_SLACK:
        return None  # what Slurm knows is of an earlier boot
    proof: dict[str, Any] = {"old_boot_id": old, "new_boot_id": boot_id, "uptime": uptime}
    if node is not None:
        proof.update(boot_time=node.boot_time, slurmd_start_time=node.slurmd_start_time, state=node.state)
    return done(work, remember={"new_boot_id": boot_id, **_lease(work, tools)}, proof=proof)


def _lease(work: Work, tools: Tools) -> dict[str, str]:
    """Nothing where it cannot be read: an API server that is away does not keep the node from Slurm."""
    name = kubernetes_name(work, tools)
    try:
        renewed = kubernetes_nodes.lease_renewed(tools.kubernetes, name) if name else ""
    except RecoveryError:
        renewed = ""
    return {LEASE_RENEWED: renewed} if renewed else {}


def _not_yet(work: Work, tools: Tools, registered: bool) -> Outcome:
    seconds = tools.settings.limits.boot_timeout
    if over(work, tools):
        return failed(work, "%s did not come back with a proved boot within %g s" % (work.target.name, seconds))
    name = slurm_name(work, tools)
    if registered and name:
        return retry(work, tools, "%s has registered, its boot is not proved yet" % name, _LOOK_AGAIN)
    why = "the boot of %s is awaited" % work.target.name
    if name:
        before = _start_before(work)
        args = {"node": name, **({} if before is None else {"slurmd_start_time": before})}
        return waiting(work, why, waits.NODE_REGISTERED, args)
    if kubernetes_name(work, tools):
        old = recorded_boot_id(work) if _is_rebooted(work) else ""
        args = {"node": kubernetes_name(work, tools), **({"boot_id": old} if old else {})}
        return waiting(work, why, waits.KUBERNETES_NODE_READY, args, tools.now() + 10 * _LOOK_AGAIN)
    return retry(work, tools, why, _LOOK_AGAIN)


def _is_rebooted(work: Work) -> bool:
    """Whether this plan rebooted the node, so that another boot is due."""
    return work.plan.startswith("reboot")


def _start_before(work: Work) -> Optional[float]:
    """When slurmd was started last before the reboot; None where that does not matter or is not known."""
    before = work.memory.get("slurmd_start_before")
    return before if _is_rebooted(work) and isinstance(before, (int, float)) else None
