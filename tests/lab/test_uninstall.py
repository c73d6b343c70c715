# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Uninstalled, nothing of recovery is left but its ledger. The last of all: nothing is installed afterwards.

Out of an image as well: a folder on the head node with a real Python in it, which `chroot` runs.
"""

from __future__ import annotations

import json
import os
import subprocess

import pytest
from controller import Ended
from joblab import kubernetes
from joblab.instance import HOSTS

IMAGE = "/srv/image"
# enough of a system for the helper: Python, what it is linked with, slurmd's unit, and /proc, as a node has it
_MAKE_IMAGE = f"""
set -e
mkdir -p {IMAGE}/usr/bin {IMAGE}/usr/local/sbin {IMAGE}/usr/local/lib {IMAGE}/usr/lib/systemd/system
mkdir -p {IMAGE}/etc/tmpfiles.d {IMAGE}/root/.ssh {IMAGE}/proc
ln -s usr/lib {IMAGE}/lib
ln -s usr/lib64 {IMAGE}/lib64
python=$(readlink -f /usr/bin/python3)
cp "$python" {IMAGE}/usr/bin/python3
cp -a --parents "/usr/lib/${{python##*/}}" {IMAGE}
for file in $(ldd "$python" | grep -o '/[^ ]*'); do
    cp -L --parents "$(readlink -f "$(dirname "$file")")/$(basename "$file")" {IMAGE}
done
printf '[Unit]\\nAfter=network.target\\n' > {IMAGE}/usr/lib/systemd/system/slurmd.service
mount -t proc proc {IMAGE}/proc
"""
_REMOVE_IMAGE = f"umount {IMAGE}/proc 2>/dev/null; rm -rf --one-file-system {IMAGE}"
#: Everything of ours by its name. The database stays, and so do logs and what others keep: a registry its charts.
_LEFT = (
    "find / -xdev \\( -path /proc -o -path /sys -o -path /var/lib/mysql -o -path /var/log -o -path /opt/lab "
    "-o -path /var/lib/docker-registry \\) -prune "
    "-o \\( -iname '*job-recovery*' -o -iname '*job_recovery*' \\) -print; "
    "getent passwd job-recovery; getent group job-recovery; grep -l job-recovery@ /root/.ssh/authorized_keys; true"
)


#: The play of site.yml that does it, alone.
_ROLE = {"name": "mission_control.job_recovery.node_agent", "tasks_from": "image.yml"}
INTO_IMAGE = [
    {"hosts": "controller", "gather_facts": False, "become": True, "tasks": [{"ansible.builtin.import_role": _ROLE}]}
]


def play(cluster, playbook: str, **variables: object) -> Ended:
    """Run a playbook as an administrator does."""
    lab = cluster.instance
    inventories = (lab.inventory, lab.checkout / "inventory/lab")
    argv = ["ansible-playbook", *(f"--inventory={one}" for one in inventories), "--extra-vars", json.dumps(variables)]
    argv += [playbook]
    plain = {**os.environ, "ANSIBLE_FORCE_COLOR": "false", "ANSIBLE_NOCOLOR": "true"}
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=400, env=plain)
    return Ended(done.returncode, done.stdout + done.stderr)


def objects(cluster) -> set[str]:
    """What in Kubernetes has no namespace and an installation could touch."""
    kinds = "namespaces,customresourcedefinitions,clusterroles,clusterrolebindings,validatingadmissionpolicies"
    return set(kubernetes.kubectl(cluster.instance, ["get", kinds, "-o", "name"]).stdout.split())


def rows(cluster) -> int:
    return int(cluster.head("mariadb -N -e 'SELECT COUNT(*) FROM incidents' job_recovery"))


@pytest.fixture
def image(whole_cluster):
    """The folder of an image; gone afterwards."""
    whole_cluster.head(_REMOVE_IMAGE)
    whole_cluster.head(_MAKE_IMAGE, timeout=60)
    yield {"node_agent_images": [IMAGE]}
    whole_cluster.head(_REMOVE_IMAGE)


def test_nothing_is_left_but_the_ledger(whole_cluster, image, tmp_path):
    cluster = whole_cluster
    (tmp_path / "into_image.json").write_text(json.dumps(INTO_IMAGE), encoding="utf-8")
    installed = play(cluster, str(tmp_path / "into_image.json"), **image)
    assert installed.rc == 0, installed.output[-4000:]
    probe = json.loads(cluster.head(f"chroot {IMAGE} /usr/local/sbin/job-recovery-node probe").splitlines()[-1])
    assert probe["ok"] is True, probe
    before, kept = objects(cluster), rows(cluster)
    ours = {one for one in before if "job-recovery" in one}
    assert ours
    removed = play(cluster, "mission_control.job_recovery.uninstall", **image)
    assert removed.rc == 0, removed.output[-4000:]
    for host in HOSTS:
        assert cluster.on(host, _LEFT, timeout=60) == "", host
    for kind in ("user", "account"):
        assert cluster.head(f"sacctmgr -n -P show {kind} name=job-recovery") == "", kind
    assert before - objects(cluster) == ours, "others' things are kept"
    assert not {one for one in objects(cluster) if "job-recovery" in one}
    assert rows(cluster) == kept
