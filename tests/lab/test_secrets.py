# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""No secret is shown, logged, passed as an argument, written to the ledger, or readable by others."""

from __future__ import annotations

import base64
import os
import re
import secrets as random
import subprocess

from controller import by_hand, on_head
from secret_search import in_output, in_place, secrets_of, watched
from watching import incidents

#: Where the collection is that was installed, if not in this checkout.
ARCHIVES = "JOB_RECOVERY_TESTS_COLLECTIONS"


def test_the_search_finds_what_is_planted(cluster):
    """In every place that is searched, as it is and in base64; with a text that is no secret."""
    decoy = "nvapi-" + random.token_urlsafe(24)
    encoded = base64.b64encode(f"user:{decoy}".encode()).decode()
    planted = {"decoy": decoy}
    assert in_output(planted, f"-u user:{decoy} https://example.org") == ["decoy"]
    assert in_output(planted, f"Authorization: Basic {encoded}") == ["decoy"]
    with watched(planted) as seen:
        cluster.head(f"SECRET={encoded} sh -c 'sleep 3; true' & sh -c 'sleep 3; true' sh {decoy} & wait")
        subprocess.run(["sh", "-c", "sleep 2; true", "sh", decoy], check=True)
    places = sorted(line.split("\t")[1].partition(" of ")[0] for line in seen)
    assert {"cmdline", "environ"} <= set(places), seen
    statement = f"INSERT INTO control (name, value, changed_at) VALUES ('decoy', '{decoy}', 0)"
    try:
        on_head(cluster, ["mariadb", "job_recovery"], stdin=statement)
        on_head(cluster, ["logger"], stdin=decoy)
        cluster.head(f"echo {decoy} > /etc/job-recovery-decoy; chmod 644 /etc/job-recovery-decoy")
        cluster.head("install -d -m 700 /var/lib/job-recovery/decoy")
        cluster.head(f"echo {encoded} > /var/lib/job-recovery/decoy/extravars; chmod 600 /var/lib/job-recovery/decoy/*")
        cluster.on("node2", f'echo \'{{"auth": "{encoded}"}}\' > /tmp/decoy.json; chmod 644 /tmp/decoy.json')
        found = {line.split("\t")[1] for line in in_place(cluster, planted)}
    finally:
        cluster.head("rm -rf /etc/job-recovery-decoy /var/lib/job-recovery/decoy")
        cluster.on("node2", "rm -f /tmp/decoy.json")
        on_head(cluster, ["mariadb", "job_recovery"], stdin="DELETE FROM control WHERE name = 'decoy'")
    assert {
        "head: the ledger",
        "head: the journal",
        "head: file /etc/job-recovery-decoy",
        "head: file /var/lib/job-recovery/decoy/extravars",
        "node2: file /tmp/decoy.json",
    } <= found, found


def test_installed_again_nothing_changes_and_no_secret_is_anywhere(cluster):
    """While everything is installed again and a node is repaired by hand, both showing all they can."""
    secrets = secrets_of(cluster)
    inventories = (cluster.instance.checkout / "inventory/lab", cluster.instance.inventory)
    site = ["ansible-playbook", *(f"--inventory={path}" for path in inventories), "mission_control.job_recovery.site"]
    by_hand = "job-recovery run reboot_node --nodes node2 --reason firmware --wait".split()
    all_they_can = ["-vvv", "--diff"]
    plain = {**os.environ, "ANSIBLE_FORCE_COLOR": "false", "ANSIBLE_NOCOLOR": "true"}  # Molecule wants colours
    if os.environ.get(ARCHIVES):
        plain.update(ANSIBLE_COLLECTIONS_PATH=os.environ[ARCHIVES], PYTHONPATH="")
    with watched(secrets) as seen:
        installed = subprocess.run(
            site + all_they_can, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600, env=plain
        )
        repaired = on_head(cluster, by_hand + all_they_can, timeout=300)
        assert installed.returncode == 0, "site.yml failed"
        changed = dict(re.findall(r"^(\S+) +: ok=\d+ +changed=(\d+) ", installed.stdout, re.MULTILINE))
        assert len(changed) > len(cluster.instance.nodes), "no recap was found"
        assert set(changed.values()) == {"0"}, changed
        assert repaired.rc == 0, f"the repair failed: {[row['why'] for row in incidents(cluster)]}"
    outputs = {
        "site.yml": installed.stdout + installed.stderr,
        "the repair": repaired.output,
        "status": on_head(cluster, ["job-recovery", "status"]).output,
        "incidents": on_head(cluster, ["job-recovery", "incidents", "--all", "--json"]).output,
    }
    shown = {name: in_output(secrets, output) for name, output in outputs.items()}
    assert not any(shown.values()), shown
    assert not seen, seen
    assert not in_place(cluster, secrets)


def test_a_wrong_password_is_not_shown_either(cluster):
    """Errors tell what they tried: with a password that the database refuses, it is still not told."""
    decoy = random.token_urlsafe(24)
    cluster.head("cp -a /etc/job-recovery/ledger.password /etc/job-recovery/ledger.password.kept")
    try:
        on_head(cluster, ["tee", "/etc/job-recovery/ledger.password"], stdin=decoy)
        with watched({"decoy": decoy}) as seen:
            refused = by_hand(cluster, "reboot_node", nodes="node1", reason="firmware")
            status = on_head(cluster, ["job-recovery", "status"])
    finally:
        cluster.head("mv /etc/job-recovery/ledger.password.kept /etc/job-recovery/ledger.password")
    assert refused.rc != 0
    assert not in_output({"decoy": decoy}, refused.output + status.output)
    assert not seen, seen
