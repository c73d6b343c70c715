# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import base64
import gzip

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import (
    Conflict,
    Forbidden,
    Unreadable,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.helm import release
from ansible_collections.mission_control.job_recovery.tests.unit.plugins.module_utils.helm import records
from ansible_collections.mission_control.job_recovery.tests.unit.plugins.module_utils.kubernetes.api_server import (
    status,
)

DIGEST = "sha256:" + "a" * 64


def test_a_record_is_read():
    found = records.parsed(revision=3, status="pending-upgrade", values={"a": 1}, hooks=("kind: Job",))
    assert (found.name, found.namespace, found.revision, found.status) == ("web", "apps", 3, "pending-upgrade")
    assert (found.chart, found.version, found.values) == ("front", "1.0.0", {"a": 1})
    assert found.hooks == ("kind: Job",)
    assert found.since == 1796040000.0


@pytest.mark.parametrize(
    ("description", "digests"),
    [
        ("Install complete", set()),
        ("somebody wrote " + DIGEST, set()),
        (release.description([DIGEST]), {DIGEST}),
        (release.description([]), set()),
    ],
)
def test_digests_are_only_those_that_we_wrote(description, digests):
    assert records.parsed(description=description).digests == digests


@pytest.mark.parametrize(
    "data",
    [
        "",
        "!",
        base64.b64encode(b"no base64").decode(),
        base64.b64encode(base64.b64encode(b"\x1f\x8bcut")).decode(),
        base64.b64encode(base64.b64encode(b"[1]")).decode(),
        base64.b64encode(base64.b64encode(b"{}")).decode(),
        base64.b64encode(base64.b64encode(b"[" * 100_000)).decode(),
        base64.b64encode(base64.b64encode(gzip.compress(b"[" * 100_000))).decode(),
    ],
)
def test_what_cannot_be_read_is_said_without_its_content(data):
    broken = dict(records.secret(), data={"release": data})
    with pytest.raises(Unreadable, match=r"apps/sh\.helm\.release\.v1\.web\.v1"):
        release.parse(broken)


def put(api, *secrets):
    for each in secrets:
        api.put(records.path(each), each)


def test_the_newest_revision_is_read_by_number(api, client):
    put(api, *(records.secret(revision=n, status="superseded") for n in (1, 2, 8)))
    put(api, records.secret(revision=9), records.secret(revision=10, status="failed"))
    found = release.newest(client, "apps", "web")
    assert (found.revision, found.status, found.deployed) == (10, "failed", 9)
    assert release.newest(client, "apps", "other") is None
    assert release.newest(client, "elsewhere", "web") is None
    assert release.find(client, "apps", "web", 2).revision == 2
    assert release.find(client, "apps", "web", 11) is None


def test_a_record_that_has_just_gone_is_looked_for_again(api, client):
    first, second = records.secret(revision=1), records.secret(revision=2)
    put(api, first, second)
    api.tell("GET", records.path(second), 404, status(404), before=lambda: api.take(records.path(second)))
    assert release.newest(client, "apps", "web").revision == 1


def test_forbidden_is_not_absent(api, client):
    api.tell("GET", "/api/v1/namespaces/apps/secrets", 403, status(403, "Forbidden"))
    with pytest.raises(Forbidden):
        release.newest(client, "apps", "web")


def test_marking_changes_the_status_and_nothing_else(api, client):
    put(api, records.secret(revision=3, status="pending-upgrade", values={"a": 1}))
    before = release.newest(client, "apps", "web")
    patch = release.marked_failed(before, "interrupted", 1796041000.7)
    path = "/api/v1/namespaces/apps/secrets/" + before.secret
    client.patch(path, patch)
    after = release.newest(client, "apps", "web")
    assert (after.status, after.description) == ("failed", "interrupted")
    assert after.record["chart"] == before.record["chart"]
    assert after.values == before.values
    assert api.see(path)["metadata"]["labels"]["status"] == "failed"
    assert api.see(path)["metadata"]["labels"]["modifiedAt"] == "1796041000"
    with pytest.raises(Conflict):
        client.patch(path, patch)  # somebody has written meanwhile
