# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What `log_diagnosis` reads from Loki, over HTTPS with credentials, from a server that behaves as Loki."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import (
    BadInput,
    Forbidden,
    Unreachable,
    Unreadable,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.logs.diagnosis import SPEC, run
from ansible_collections.mission_control.job_recovery.plugins.module_utils.loki import client, last_lines
from ansible_collections.mission_control.job_recovery.plugins.module_utils.loki.answers import Refused
from ansible_collections.mission_control.job_recovery.plugins.module_utils.power.http import TooLong, Untrusted
from ansible_collections.mission_control.job_recovery.tests.stand_ins.loki import LokiStandIn
from ansible_collections.mission_control.job_recovery.tests.stand_ins.serving import Certificate, make_certificate

USER, PASSWORD = "reader", "p@ss"
DEFAULTS = {name: option.get("default") for name, option in SPEC["argument_spec"].items()}
NOTHING = {name: option.get("default") for name, option in last_lines.OPTIONS.items()}
POD = {"namespace": "team", "pod": "train-0"}
SEGFAULT = "Segmentation fault (core dumped)"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def loki(certificate: Certificate) -> Iterator[LokiStandIn]:
    with LokiStandIn(certificate) as made:
        made.ingress = (USER, PASSWORD)
        made.put(POD, "step 1")
        made.put(POD, SEGFAULT)
        made.put({"slurm_job_id": "4711"}, "CUDA out of memory")
        made.put({"slurm_job_id": "4712"}, SEGFAULT)
        time.sleep(0.002)  # what was put just now is before now
        yield made


@pytest.fixture
def wanted(loki: LokiStandIn, certificate: Certificate, tmp_path: Path) -> dict[str, Any]:
    secret = tmp_path / "credentials"
    secret.write_text("%s:%s\n" % (USER, PASSWORD), encoding="utf-8")
    return {**NOTHING, "url": loki.url, "ca_file": str(certificate.ca), "credentials_file": str(secret)}


def diagnosed(wanted: dict[str, Any], **other: Any) -> dict[str, Any]:
    result = run({**DEFAULTS, "source": "job", "loki": {**wanted, **other}}, True)
    assert PASSWORD not in str(result)
    return result


@pytest.mark.parametrize(
    ("asked", "why", "lines"),
    [
        ({"pod": "team/train-0"}, "segfault", 2),
        ({"job": "4711"}, "cuda_oom", 1),
        ({"job": "train-0", "job_label": "pod"}, "", 0),
        ({"job": "47"}, "nothing_found", 0),
        ({"query": '{slurm_job_id=~"471."} |= "CUDA"'}, "cuda_oom", 1),
        ({"query": "rate("}, "Refused", 0),
        ({"pod": 'team/x"} or {job=~".+'}, "", 0),
        ({"pod": "train-0"}, "", 0),
        ({"job": "4711", "job_label": 'x="y"} or {z'}, "", 0),
        ({"pod": "team/train-0", "since": 0}, "", 0),
    ],
)
def test_what_is_asked_for(wanted: dict[str, Any], asked: dict[str, Any], why: str, lines: int) -> None:
    if why in ("", "Refused"):
        with pytest.raises(Refused if why else BadInput):
            diagnosed(wanted, **asked)
        return
    told = diagnosed(wanted, **asked)
    assert (told["why"], told["lines_read"]) == (why, lines)


def test_of_too_many_lines_the_last_are_read(
    loki: LokiStandIn, wanted: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(600):
        loki.put(POD, "step %d %s" % (number, "x" * 200))
    loki.put(POD, "CUDA out of memory")
    time.sleep(0.002)
    monkeypatch.setattr(client, "_MAX_ANSWER", 60000)  # less than 500 of them, more than 50
    lines = last_lines.read({**wanted, "pod": "team/train-0"}, time.time(), 9.0)
    assert (len(lines), lines[-1]) == (50, "CUDA out of memory")
    monkeypatch.setattr(client, "_MAX_ANSWER", 100)
    with pytest.raises(TooLong):
        last_lines.read({**wanted, "pod": "team/train-0"}, time.time(), 9.0)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"ca_file": None}, Untrusted),
        ({"credentials_file": None}, Forbidden),
        ({"credentials_file": "/nonexistent"}, Unreadable),
        ({"url": "http://127.0.0.1:9"}, BadInput),
        ({"url": "http://127.0.0.1:9", "credentials_file": None}, Unreachable),
        ({"url": "https://u:p@127.0.0.1"}, BadInput),
    ],
)
def test_what_is_not_read(wanted: dict[str, Any], changes: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error) as raised:
        diagnosed(wanted, pod="team/train-0", **changes)
    assert PASSWORD not in str(raised.value)


def test_lines_before_the_time_are_left_out(wanted: dict[str, Any]) -> None:
    assert last_lines.read({**wanted, "pod": "team/train-0", "since": 1}, time.time() + 60.0, 9.0) == []
