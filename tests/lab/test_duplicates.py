# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Thirty duplicates of one fault at once, through a real ansible-rulebook with the collection's own rules."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import datetime, timezone

import yaml
from joblab.demo.cases import fault
from watching import incidents, settled, sleep_until

DUPLICATES = 30
UNIT = "job-recovery-storm"
FOLDER = "/var/lib/job-recovery/storm"
COLLECTION = "/opt/job-recovery/collections/ansible_collections/mission_control/job_recovery"


def event(node, seen_at):
    return {
        "fault": {
            "kind": "node_not_responding",
            "scheduler": "slurm",
            "cluster": "lab",
            "source": "slurm",
            "targets": [{"node": node}],
            "seen_at": datetime.fromtimestamp(seen_at, tz=timezone.utc).isoformat(timespec="milliseconds"),
            "suggested": "reboot_node",
            "evidence_ref": 0,
        }
    }


@contextmanager
def engine(cluster, events):
    """A second engine beside the stopped service: the same rules, the ledger's waits, and these events at once."""
    (ruleset,) = yaml.safe_load(cluster.head(f"cat {COLLECTION}/extensions/eda/rulebooks/recovery.yml"))
    ledger = [source for source in ruleset["sources"] if source["name"] == "ledger"]
    storm = {"name": "storm", "ansible.eda.generic": {"payload": events, "startup_delay": 2, "shutdown_after": 3600}}
    ruleset["sources"] = [*ledger, storm]
    cluster.head(f"install -d -o job-recovery -m 755 {FOLDER}")
    cluster.write(f"{FOLDER}/storm.yml", yaml.safe_dump([ruleset]))
    cluster.head(
        f"systemd-run --collect --unit={UNIT} --uid=job-recovery --working-directory=/var/lib/job-recovery"
        f" --property=EnvironmentFile=/etc/job-recovery/environment"
        f" /opt/job-recovery/venv/bin/ansible-rulebook --rulebook {FOLDER}/storm.yml"
        f" --inventory /etc/job-recovery/inventory.yml --execution-strategy parallel"
    )
    try:
        yield
    finally:
        cluster.head(f"systemctl stop {UNIT}; rm -rf {FOLDER} /var/lib/job-recovery/*.beat.json", timeout=120)


def runs(cluster):
    """How many runs of the fault's remediation were begun since the test began."""
    query = f"SELECT COUNT(*) FROM runs WHERE remediation = 'reboot_node' AND started_at > {cluster.begun}"
    return int(cluster.head(f'mariadb --batch --skip-column-names --execute "{query}" job_recovery'))


def test_thirty_duplicates_are_one_incident_and_delay_nobody(cluster):
    cluster.recovery(on=False)
    fault(cluster.instance, "kill_slurmd", "node3", "node4")
    for node in ("node3", "node4"):
        sleep_until(lambda node=node: "not_responding" in cluster.node(node).words, 90, 0.5)
    now = cluster.now()
    storm = [event("node3", now + number / 1000) for number in range(DUPLICATES)]
    with engine(cluster, [*storm, event("node4", now)]):
        (first,) = settled(cluster, "node3")
        (other,) = settled(cluster, "node4")
    assert [first["state"], other["state"]] == ["closed", "closed"]
    assert [step["step"] for step in first["steps"]] == ["restart_daemon", "confirm"]
    assert len(incidents(cluster)) == 2
    # not one run for each of them; a loaded machine may take longer to send them than duplicates are held together
    assert runs(cluster) < 2 + DUPLICATES / 3
    assert other["steps"][0]["started_at"] < first["closed_at"], "the other node waited for the end of the storm"
    for node in ("node3", "node4"):
        assert cluster.node(node).in_service
