# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Remediations that a person asks for: through the same gates and steps, shown, recorded, and stopped by the stop."""

from __future__ import annotations

from controller import by_hand, on_head, settings_changed
from joblab.demo.cases import fault
from watching import incidents, settled, sleep_until, steps_of

REASON = "new firmware, ticket 4711"


def boot_id(cluster, node):
    return cluster.on(node, "cat /proc/sys/kernel/random/boot_id")


def ended_well(rows):
    """The one incident, closed after one reboot."""
    (row,) = rows
    assert row["state"] == "closed", row
    assert len(steps_of(row, "reboot")) == 1, row
    return row


def test_two_nodes_are_rebooted_and_followed_and_one_outside_the_scope_stays_alone(cluster):
    before = {node: boot_id(cluster, node) for node in ("node1", "node2", "node3")}
    with settings_changed(cluster, 's/^  nodes: .*/  nodes: ["node[1-2]"]/'):
        done = by_hand(cluster, "reboot_node", nodes="node[1-3]", reason=REASON, wait="true")
    assert done.rc != 0
    assert "node3: refused by the gate scope" in done.output, done.output
    assert not incidents(cluster, "node3")
    assert boot_id(cluster, "node3") == before.pop("node3")
    for node in before:  # neither refused nor delayed by the other one
        assert f"{node}: incident #" in done.output
        assert f"{node}  reboot started" in done.output or f"{node}  reboot done" in done.output, done.output
        assert f"{node}  closed" in done.output
        row = ended_well(incidents(cluster, node))
        assert (row["fault_kind"], row["request_reason"]) == ("requested", REASON)
        assert row["requested_by"] == "root as job-recovery"
        assert boot_id(cluster, node) != before[node]
        assert cluster.node(node).in_service
        assert not cluster.node(node).reason


def test_the_service_is_down_and_the_person_waits(cluster):
    cluster.recovery(on=False)
    before = boot_id(cluster, "node3")
    done = by_hand(cluster, "reboot_node", nodes="node3", reason=REASON, wait="true")
    assert done.rc == 0, done.output
    ended_well(incidents(cluster, "node3"))
    assert boot_id(cluster, "node3") != before
    assert cluster.node("node3").in_service


def test_a_person_overrides_what_may_be_overridden(cluster):
    fault(cluster.instance, "drain_person", "node4")
    before = boot_id(cluster, "node4")
    refused = by_hand(cluster, "reboot_node", nodes="node4", reason=REASON)
    assert refused.rc != 0
    assert "node4: refused by the gate owner" in refused.output, refused.output
    assert not incidents(cluster, "node4")
    for gate in ("stopped", "scope", "identity", "duplicate"):
        never = by_hand(cluster, "reboot_node", nodes="node4", reason=REASON, override=f"[{gate}]")
        assert never.rc != 0
        assert f"the gates {gate} cannot be overridden" in never.output, never.output
    done = by_hand(cluster, "return_node", nodes="node4", reason=REASON, override="[owner]", wait="true")
    (row,) = incidents(cluster, "node4")
    assert row["override"] == ["owner"]
    assert row["requested_by"] == "root as job-recovery"
    assert done.rc == 0, done.output
    assert boot_id(cluster, "node4") == before


ASKED_WRONGLY = (
    ({"nodes": "node1"}, "a reason is needed"),
    ({"nodes": "node1", "reason": "  "}, "a reason is needed"),
    ({"nodes": "node9", "reason": REASON}, "node9: refused by the gate"),
    ({"nodes": "node1; reboot", "reason": REASON}, "node1; reboot"),
    ({"nodes": "node1", "reason": REASON, "override": "[everything]"}, "no gate is named"),
    ({}, "give --nodes"),
)


def test_what_is_asked_wrongly_is_said_and_not_done(cluster):
    for extra, why in ASKED_WRONGLY:
        done = by_hand(cluster, "reboot_node", **extra)
        assert done.rc != 0, extra
        assert why in done.output, (extra, done.output)
    assert not incidents(cluster)


def test_the_emergency_stop_holds_an_open_incident(cluster):
    before = boot_id(cluster, "node2")
    begun = by_hand(cluster, "reboot_node", nodes="node2", reason=REASON)
    assert begun.rc == 0, begun.output
    sleep_until(lambda: any(steps_of(row, "reboot") for row in incidents(cluster, "node2")), 60)
    assert on_head(cluster, ["job-recovery", "stop", "--reason", "fire"]).rc == 0
    at_stop = steps_begun(cluster)
    sleep_until(lambda: boot_id(cluster, "node2") not in ("", before), 90)
    sleep_until(lambda: "idle" in " ".join(cluster.node("node2").words), 90)
    status = on_head(cluster, ["job-recovery", "status"])
    assert status.rc == 1
    assert "stopped by" in status.output
    refused = by_hand(cluster, "reboot_node", nodes="node3", reason=REASON)
    assert "node3: refused by the gate stopped" in refused.output, refused.output
    assert steps_begun(cluster) == at_stop
    (row,) = incidents(cluster, "node2")
    assert row["state"] in ("open", "waiting")
    assert "drain" in cluster.node("node2").words, "the node that was taken stays taken"
    assert on_head(cluster, ["job-recovery", "resume"]).rc == 0
    ended_well(settled(cluster, "node2"))
    assert cluster.node("node2").in_service


def steps_begun(cluster):
    """Every step that was begun since the test began, and how often its run was started."""
    return [(row["id"], step["step"], step["last_started_at"]) for row in incidents(cluster) for step in row["steps"]]
