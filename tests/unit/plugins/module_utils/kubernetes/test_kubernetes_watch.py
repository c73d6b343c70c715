# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import time

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import (
    Forbidden,
    RecoveryError,
    Unreachable,
    Unreadable,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.client import Expired
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.models import node_view
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.watch import Mirror, parse_event
from ansible_collections.mission_control.job_recovery.tests.unit.plugins.module_utils.kubernetes.api_server import (
    status,
)

NODES = "/api/v1/nodes"


def node(ready="True", **metadata):
    return {
        "kind": "Node",
        "metadata": metadata,
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    }


def line(kind, thing):
    return json.dumps({"type": kind, "object": thing}).encode() + b"\n"


def until(condition, seconds=5.0):
    """Wait for what a thread does."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


@pytest.fixture
def mirror(client):
    made = Mirror(client, NODES, node_view, turn=0.05)
    yield made
    made.stop()


def ready_of(mirror):
    try:
        return {view.name: view.ready for view in mirror.views()}
    except RecoveryError:
        return None


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (line("ERROR", status(410, "Expired")), Expired),
        (line("ERROR", status(410, "Gone")), Expired),
        (line("ERROR", status(403, "Forbidden")), Forbidden),
        (line("ERROR", status(500, "InternalError")), Unreachable),
        (line("ERROR", {"kind": "Status"}), Unreachable),
        (line("ERROR", {"code": 200}), Unreadable),
        (line("SURPRISE", {}), Unreadable),
        (b"<html>", Unreadable),
        (b'{"type": "ADDED"}', Unreadable),
        (b"7", Unreadable),
        (b"[" * 100000, Unreadable),
    ],
)
def test_lines_that_are_no_events(text, error):
    with pytest.raises(error):
        parse_event(text, NODES)


def test_a_bookmark_only_moves_the_place():
    event = parse_event(line("BOOKMARK", {"metadata": {"resourceVersion": "7"}}), NODES)
    assert (event.kind, event.resource_version) == ("BOOKMARK", "7")


def test_nothing_is_known_before_the_first_list(mirror):
    with pytest.raises(Unreachable, match="not yet listed"):
        mirror.views()


def test_changes_are_seen(api, mirror):
    api.put(NODES + "/n1", node())
    mirror.start()
    until(lambda: ready_of(mirror) == {"n1": "True"})
    api.put(NODES + "/n1", node("Unknown"))
    api.put(NODES + "/n2", node())
    until(lambda: ready_of(mirror) == {"n1": "Unknown", "n2": "True"})
    api.take(NODES + "/n2")
    until(lambda: ready_of(mirror) == {"n1": "Unknown"})


def test_a_watch_that_ends_silently_goes_on_from_where_it_was(api, mirror):
    api.watch_seconds = 0.1
    api.put(NODES + "/n1", node())
    mirror.start()
    until(lambda: len([request for request in api.requests if "watch=true" in request]) >= 3)
    api.put(NODES + "/n2", node())
    until(lambda: ready_of(mirror) == {"n1": "True", "n2": "True"})
    assert len([request for request in api.requests if "watch=true" not in request]) == 1


def test_bookmarks_are_remembered_and_are_no_nodes(api, mirror):
    api.put(NODES + "/n1", node())
    api.watch_lines = [[line("BOOKMARK", {"kind": "Node", "metadata": {"resourceVersion": "4711"}})]]
    mirror.start()
    until(lambda: any("resourceVersion=4711" in request for request in api.requests))
    assert ready_of(mirror) == {"n1": "True"}


@pytest.mark.parametrize("form", ["event", "status"])
def test_a_place_that_the_server_forgot_is_listed_again(api, mirror, form):
    """And what happened in between, while nobody watched, is found: a change, a new node, and one that went."""

    def meanwhile():
        api.put(NODES + "/n1", node("False"))
        api.put(NODES + "/n2", node("Unknown"))
        api.take(NODES + "/n3")

    api.put(NODES + "/n1", node())
    api.put(NODES + "/n3", node())
    listing = api.collection(NODES, {})
    api.tell("GET", NODES, 200, listing, before=meanwhile)  # the list is from before
    if form == "event":
        api.watch_lines = [[line("ERROR", status(410, "Expired"))]]
    else:
        api.tell("GET", NODES, 410, status(410, "Expired"))
    mirror.start()
    until(lambda: ready_of(mirror) == {"n1": "False", "n2": "Unknown"})


def test_410_as_http_status(api, client):
    api.tell("GET", NODES, 410, status(410, "Expired"))
    with pytest.raises(Expired):
        next(client.watch(NODES, "1", {}, 1))


def test_half_a_line_and_a_broken_connection(api, mirror):
    api.put(NODES + "/n1", node())
    api.watch_lines = [[line("MODIFIED", dict(node("False"), metadata={"name": "n1", "uid": "uid-n1"}))[:40]]]
    mirror.start()
    until(lambda: not api.watch_lines and ready_of(mirror) == {"n1": "True"})


def test_what_cannot_be_read_lists_again(api, mirror):
    api.put(NODES + "/n1", node())
    api.watch_lines = [[line("ADDED", {"metadata": {}})], [b"nonsense\n"]]
    mirror.start()
    until(lambda: len([request for request in api.requests if "watch=true" not in request]) >= 3)
    until(lambda: ready_of(mirror) == {"n1": "True"})


def test_an_outage_is_no_empty_cluster(api, mirror):
    api.watch_seconds = 0.1
    api.put(NODES + "/n1", node())
    mirror.start()
    until(lambda: ready_of(mirror) == {"n1": "True"})
    api.tell("GET", NODES, 503, status(503), times=3)
    until(lambda: ready_of(mirror) is None)
    until(lambda: ready_of(mirror) == {"n1": "True"})
    assert len([request for request in api.requests if "watch=true" not in request]) == 1


def test_only_what_is_wanted_is_remembered_and_everything_is_shown(api, client):
    seen = []
    made = Mirror(client, NODES, node_view, keep=lambda view: view.ready != "True", on_view=seen.append)
    api.put(NODES + "/n1", node())
    api.put(NODES + "/n2", node("False"))
    made.start()
    until(lambda: ready_of(made) == {"n2": "False"})
    api.put(NODES + "/n2", node("True"))
    until(lambda: ready_of(made) == {})
    api.take(NODES + "/n1")
    until(lambda: [view.name for view in seen] == ["n1", "n2", "n2", "n1"])
    made.stop()
