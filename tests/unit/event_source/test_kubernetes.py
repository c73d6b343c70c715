# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import asyncio
import importlib.util
import json
import pathlib
import socket

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import RecoveryError
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes import rbac
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.fault import parse_event
from ansible_collections.mission_control.job_recovery.tests.unit.plugins.module_utils.kubernetes.api_server import (
    ApiServer,
    status,
)

# As ansible-rulebook does it: by path, not as a module of the collection.
SOURCE = pathlib.Path(__file__).parents[3] / "extensions/eda/plugins/event_source/kubernetes.py"
HOSTILE = "{{ lookup('pipe','touch /tmp/x') }}\n$(touch /tmp/x)\x1b[31m'\""


def loaded():
    spec = importlib.util.spec_from_file_location("eda_source_kubernetes", SOURCE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def api():
    server = ApiServer()
    server.grants = rbac.OBSERVE
    yield server
    server.close()


def settings_file(tmp_path, kubeconfig, **more):
    path = tmp_path / "settings.yml"
    content = {
        "cluster": "lab",
        "state_dir": str(tmp_path),
        "slurm": {"enabled": False},
        "scope": {"namespaces": ["a"]},
        "kubernetes": {"kubeconfig": kubeconfig, "timeout": 2},
    }
    path.write_text(json.dumps({**content, **more}))
    return str(path)


def put_node(api, name, ready):
    condition = {"type": "Ready", "status": ready, "message": HOSTILE, "lastTransitionTime": "2026-11-30T11:00:00Z"}
    annotations = {"note": HOSTILE}
    node = {"kind": "Node", "metadata": {"annotations": annotations}, "status": {"conditions": [condition]}}
    api.put("/api/v1/nodes/" + name, node)


def put_failed_job(api):
    annotations = {"mission-control/auto-resume": HOSTILE, "mission-control/job-recovery": HOSTILE}
    failed = {"type": "Failed", "status": "True", "reason": HOSTILE, "message": HOSTILE}
    job = {"kind": "Job", "metadata": {"uid": "u1", "annotations": annotations}, "status": {"conditions": [failed]}}
    api.put("/apis/batch/v1/namespaces/a/jobs/train", job)
    pod_status = {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": HOSTILE}], "message": HOSTILE}
    owner = {"kind": "Job", "uid": "u1", "controller": True}
    pod = {"kind": "Pod", "metadata": {"ownerReferences": [owner]}, "status": pod_status}
    api.put("/api/v1/namespaces/a/pods/train-0", pod)


async def running(settings, queue):
    task = asyncio.create_task(loaded().main(queue, {"settings": settings}))
    await asyncio.sleep(0)
    return task


async def ended(task):
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def got(queue, seconds=10.0):
    return await asyncio.wait_for(queue.get(), seconds)


async def test_all_that_is_wrong_is_sent_after_the_start_as_names_only(api, tmp_path):
    put_node(api, "n1", "Unknown")
    put_node(api, "n2", "True")
    put_failed_job(api)
    queue = asyncio.Queue(1)
    task = await running(settings_file(tmp_path, api.kubeconfig(tmp_path)), queue)
    events = [await got(queue), await got(queue)]
    faults = {fault.kind: fault for fault in map(parse_event, events)}
    assert [target.name for target in faults["kubernetes_node_not_ready"].targets] == ["n1"]
    assert [(one.name, one.uid) for one in faults["kubernetes_job_failed"].targets] == [("a/train", "u1")]
    assert all(part not in json.dumps(events) for part in ("lookup", "touch", "\\u001b"))
    await ended(task)


async def test_an_outage_ends_nothing_and_what_happened_meanwhile_is_found(api, tmp_path):
    put_node(api, "n1", "True")
    api.tell("GET", "/api/v1/nodes", 503, status(503), times=2)
    queue = asyncio.Queue(1)
    task = await running(settings_file(tmp_path, api.kubeconfig(tmp_path)), queue)
    await asyncio.sleep(0.5)
    put_node(api, "n1", "False")
    assert parse_event(await got(queue)).targets[0].name == "n1"
    await ended(task)


async def test_the_loop_is_not_blocked_by_a_server_that_is_silent(tmp_path):
    silent = socket.create_server(("127.0.0.1", 0))  # the kernel takes the connection, nobody answers
    server = ApiServer()
    server.close()
    server.url = "http://127.0.0.1:%d" % silent.getsockname()[1]
    task = await running(settings_file(tmp_path, server.kubeconfig(tmp_path)), asyncio.Queue(1))
    loop = asyncio.get_running_loop()
    longest = 0.0
    for _turn in range(100):
        before = loop.time()
        await asyncio.sleep(0.01)
        longest = max(longest, loop.time() - before)
    assert longest < 0.5
    assert not task.done()
    await ended(task)
    silent.close()


async def test_settings_that_cannot_be_used_raise_before_the_first_look(tmp_path):
    path = tmp_path / "settings.yml"
    path.write_text("cluster: [")
    with pytest.raises(RecoveryError):
        await loaded().main(asyncio.Queue(1), {"settings": str(path)})


async def test_settings_that_break_later_do_not(api, tmp_path):
    put_node(api, "n1", "Unknown")
    queue = asyncio.Queue(1)
    path = settings_file(tmp_path, api.kubeconfig(tmp_path))
    task = await running(path, queue)
    await got(queue)
    (tmp_path / "settings.yml").write_text("cluster: [")
    await asyncio.sleep(1.5)
    assert not task.done()
    await ended(task)


async def test_without_kubernetes_it_waits(tmp_path):
    queue = asyncio.Queue(1)
    task = await running(settings_file(tmp_path, ""), queue)
    await asyncio.sleep(1.2)
    assert (task.done(), queue.empty()) == (False, True)
    await ended(task)
