# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Helm's records as a real helm writes them, but for what a test does not look at."""

from __future__ import annotations

from ansible_collections.mission_control.job_recovery.plugins.module_utils.helm import release

MANIFEST = """
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
---
apiVersion: v1
kind: Service
metadata: {name: web}
"""


def secret(
    revision=1,
    status="deployed",
    name="web",
    namespace="apps",
    chart="front",
    version="1.0.0",
    values=None,
    description="Install complete",
    own=False,
    created="2026-11-30T12:00:00Z",
    manifest=MANIFEST,
    hooks=(),
):
    """The Secret of one revision."""
    record = {
        "name": name,
        "namespace": namespace,
        "version": revision,
        "info": {"status": status, "description": description, "last_deployed": "2026-11-30T12:00:00.123456789Z"},
        "chart": {"metadata": {"name": chart, "version": version}, "templates": [{"name": "x", "data": "eA=="}]},
        "config": values,
        "manifest": manifest,
        "hooks": [{"name": "h", "kind": "Job", "manifest": text} for text in hooks],
    }
    labels = {"owner": "helm", "name": name, "status": status, "version": str(revision)}
    if own:
        labels["mission-control/managed-by"] = "job-recovery"
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "helm.sh/release.v1",
        "metadata": {
            "name": "sh.helm.release.v1.%s.v%d" % (name, revision),
            "namespace": namespace,
            "labels": labels,
            "creationTimestamp": created,
            "resourceVersion": "7",
        },
        "data": {"release": release.encoded(record)},
    }


def parsed(**what):
    """The same as the code sees it."""
    return release.parse(secret(**what))


def path(thing):
    """Where the API server keeps it."""
    return "/api/v1/namespaces/%(namespace)s/secrets/%(name)s" % thing["metadata"]
