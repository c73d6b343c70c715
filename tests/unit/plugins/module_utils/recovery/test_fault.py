# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Events carry identifiers only.

ansible-rulebook hands an event over as extra variables, and Ansible trusts those as templates.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import BadInput
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.catalogue import KINDS
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.fault import (
    KUBERNETES,
    SLURM,
    Target,
    build_event,
    parse_event,
    valid_job_name,
    valid_node_name,
)

NOW = 1796036820.123
# What is code to somebody: Jinja, a shell, YAML, SQL, HTML, a terminal, a format, a path, an option, a host pattern.
HOSTILE = [
    "{{ lookup('pipe','id') }}", "{{x}}", "{% if 1 %}", "{#", "}}", "n{{1}}", "$(id)", "`id`", "n;id", "n|id", "n&",
    "n>x", "!!python/name:x", "*a", "&a", "%x", "@x", "'", '"', "n' OR '1'='1", "n--", "<b>", "\x1b[31m", "n\nm", "n\n",
    "n\r", "n\x00", "n\u2028", "n\u202e", "\u00e9", "\u0661", "n m", " n", "n ", "", "-n", "--all",
    "n/../m", "../n", "n,m",
    "n[1-2]", "n:m", "~n", "!n", "all:&n", "%s", "{0}", "n" * 300, ".", "_n", "n_", "n-", "n.",
]


def event(**changed: Any) -> dict[str, Any]:
    made = build_event("node_not_responding", SLURM, "lab", "slurm", [Target("node", "node1")], NOW)
    made["fault"].update(changed)
    return made


@pytest.mark.parametrize("text", [*HOSTILE, None, 7, True, [], {}, ["node1"], b"node1"])
def test_no_field_takes_anything_but_an_identifier(text: object) -> None:
    assert not valid_node_name(text)
    assert not valid_job_name(text, SLURM)
    assert not valid_job_name(text, KUBERNETES)
    targets = [{"node": text}, {"job": text}, {"job": text, "uid": ""}, {"node": "node1", "more": text}, text]
    for changed in [{"targets": [target]} for target in targets]:
        with pytest.raises(BadInput) as caught:
            parse_event(event(**changed))
        assert str(caught.value).isprintable()
    for field in ("kind", "scheduler", "suggested", "seen_at"):
        with pytest.raises(BadInput):
            parse_event(event(**{field: text}))


@pytest.mark.parametrize("text", [text for text in HOSTILE if text not in ("n_", "n-", "n--", "n.")])
def test_names_and_uids_of_no_user(text: str) -> None:
    """What a site chose for itself is checked all the same."""
    for field in ("cluster", "source"):
        with pytest.raises(BadInput):
            parse_event(event(**{field: text}))
    with pytest.raises(BadInput):
        build_event("job_failed", SLURM, "lab", "slurm", [Target("job", "7", text or " ")], NOW)
    with pytest.raises(BadInput):
        build_event("kubernetes_job_failed", KUBERNETES, "lab", "kubernetes", [Target("job", "a/" + text)], NOW)
    with pytest.raises(BadInput):
        build_event("kubernetes_job_failed", KUBERNETES, "lab", "kubernetes", [Target("job", text + "/a")], NOW)


@pytest.mark.parametrize(("name", "scheduler", "valid"), [
    ("7", SLURM, True), ("4294967295", SLURM, True), ("7_0", SLURM, True), ("7_999999999", SLURM, True),
    ("7+1", SLURM, True), ("0", SLURM, False), ("07", SLURM, False), ("7_", SLURM, False), ("7_[1-2]", SLURM, False),
    ("7.batch", SLURM, False),
    ("7;other", SLURM, False), ("7_1_2", SLURM, False), ("99999999999", SLURM, False), ("a/b", SLURM, False),
    ("a/b", KUBERNETES, True), ("a/b.c-d", KUBERNETES, True), ("a/b/c", KUBERNETES, False), ("A/b", KUBERNETES, False),
    ("a/", KUBERNETES, False), ("/b", KUBERNETES, False), ("b", KUBERNETES, False), ("a/-b", KUBERNETES, False),
    ("7", KUBERNETES, False), ("a.b/c", KUBERNETES, False),
])
def test_names_of_jobs(name: str, scheduler: str, valid: bool) -> None:
    assert valid_job_name(name, scheduler) is valid


@pytest.mark.parametrize("name", ["n1", "node-1", "node_1", "a1.example.com", "N1", "1", "n" * 253])
def test_names_of_nodes(name: str) -> None:
    assert valid_node_name(name)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_fault_of_every_kind_comes_back_and_is_nothing_but_identifiers(kind: str) -> None:
    target = Target(KINDS[kind].target, "7" if KINDS[kind].target == "job" else "node1")
    made = build_event(kind, SLURM, "lab", "slurm", [target], NOW, evidence_ref=3)
    fault = parse_event(json.loads(json.dumps(made)))
    assert (fault.kind, fault.targets, fault.evidence_ref) == (kind, (target,), 3)
    assert fault.seen_at == pytest.approx(NOW, abs=0.001)
    assert set(made) == {"fault"}  # above all no `meta`, whose hosts would become a limit of the playbook
    assert re.fullmatch(r"[A-Za-z0-9_.:+, \"{}\[\]/-]*", json.dumps(made))


@pytest.mark.parametrize("changed", [
    {"targets": []}, {"targets": None}, {"targets": "node1"}, {"targets": {"node": "node1"}}, {"targets": [{}]},
    {"targets": [{"node": "node1"}, {"node": "node1"}]}, {"targets": [{"node": "node1", "job": "7"}]},
    {"targets": [{"node": "n%d" % number} for number in range(20_001)]}, {"evidence_ref": -1}, {"evidence_ref": True},
    {"evidence_ref": "1"}, {"evidence_ref": None}, {"seen_at": "2026-11-30T11:07:00"}, {"seen_at": NOW},
    {"seen_at": "yesterday"}, {"kind": "node_on_fire"}, {"suggested": "format_disk"}, {"scheduler": "pbs"},
])
def test_events_that_are_none(changed: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        parse_event(event(**changed))


@pytest.mark.parametrize("whole", [{}, {"fault": None}, {"fault": []}, {"fault": "x"}, {"Fault": {}}])
def test_no_event_at_all(whole: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        parse_event(whole)
