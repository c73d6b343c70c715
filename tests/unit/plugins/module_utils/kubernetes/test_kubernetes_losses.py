# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes import losses
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.causes import Cause
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.losses import Loss
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.models import PodView

T0 = 1796036820.0
TAINTED = "DeletionByTaintManager"


def pod(node="n1", cause=Cause.INFRASTRUCTURE, **fields):
    return PodView("a", "p", node=node, cause=cause, **fields)


@pytest.mark.parametrize(
    ("started", "pods", "loss"),
    [
        (T0, [pod(disruption=TAINTED, disrupted_at=T0 + 60)], Loss(("n1",), TAINTED, 60.0)),
        (
            T0,
            [pod("n2", disruption=TAINTED, disrupted_at=T0 + 90), pod(disruption=TAINTED, disrupted_at=T0 + 60)],
            Loss(("n1", "n2"), TAINTED, 60.0),
        ),
        (T0, [pod(reason="NodeLost", ended_at=T0 + 5)], Loss(("n1",), "NodeLost", 5.0)),
        (T0, [pod(ended_at=T0 + 5)], Loss(("n1",), "lost", 5.0)),  # its containers' end was not seen
        (T0, [pod(disruption=TAINTED, disrupted_at=T0 - 9)], Loss(("n1",), TAINTED, 0.0)),
        (T0, [pod(disruption="PreemptionByScheduler", disrupted_at=T0)], None),  # somebody's decision
        (T0, [pod(disruption="EvictionByEvictionAPI", disrupted_at=T0)], None),
        (T0, [pod(cause=Cause.APPLICATION, ended_at=T0)], None),
        (T0, [pod(disruption=TAINTED)], None),
        (T0, [pod(disruption="{{ x }}", disrupted_at=T0)], None),
        (T0, [pod(node="", disruption=TAINTED, disrupted_at=T0)], None),
        (None, [pod(disruption=TAINTED, disrupted_at=T0)], None),
        (T0, [], None),
    ],
)
def test_what_a_run_lost(started, pods, loss):
    assert losses.of_pods(started, pods) == loss
    if loss is not None:
        assert losses.parse(loss.as_data()) == loss


N1 = Loss(("n1",), TAINTED, 600.0)
N2 = Loss(("n2", "n3"), TAINTED, 60.0)


@pytest.mark.parametrize(
    ("before", "now", "told"),
    [
        (N1, N2, True),
        (N1, Loss(("n2",), TAINTED, 1800.0), True),
        (N1, Loss(("n2",), TAINTED, 1801.0), False),  # it ran for long: by chance
        (Loss(("n1",), TAINTED, 1801.0), N2, False),
        (N1, N1, False),  # the node is the same: the node's fault
        (N1, Loss(("n2",), "NodeLost", 60.0), False),
        (None, N2, False),
        (N1, None, False),
    ],
)
def test_a_job_that_brings_its_nodes_down(before, now, told):
    assert bool(losses.alike(before, now)) is told


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        {},
        {"nodes": [], "how": TAINTED, "after": 1},
        {"nodes": ["n"] * 6, "how": TAINTED, "after": 1},
        {"nodes": ["{{ x }}"], "how": TAINTED, "after": 1},
        {"nodes": "n1", "how": TAINTED, "after": 1},
        {"nodes": ["n1"], "how": "$(id)", "after": 1},
        {"nodes": ["n1"], "how": 7, "after": 1},
        {"nodes": ["n1"], "how": TAINTED, "after": "1"},
        {"nodes": ["n1"], "how": TAINTED, "after": True},
    ],
)
def test_what_users_wrote_is_not_believed(data):
    with pytest.raises(ValueError, match=r"nodes|how"):
        losses.parse(data)
