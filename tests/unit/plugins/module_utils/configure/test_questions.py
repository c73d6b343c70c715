# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of questions: what is asked, offered and understood."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest
import yaml
from ansible_collections.mission_control.job_recovery.plugins.module_utils.configure import questions as table
from ansible_collections.mission_control.job_recovery.plugins.module_utils.configure.questions import (
    QUESTIONS,
    SECRET,
    View,
    check_given,
    derived,
    is_answer,
    missing_text,
    topics,
    understand,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import BadInput
from ansible_collections.mission_control.job_recovery.plugins.plugin_utils.configure_tests import TESTS

ROLES = pathlib.Path(__file__).resolve().parents[5] / "roles"
ROWS = {row.variable: row for row in QUESTIONS}
ALPHA = {"cluster": "alpha", "conf": "", "partitions": ["batch", "debug"], "error": ""}
BETA = {"cluster": "beta", "conf": "/cm/beta/slurm.conf", "partitions": ["gpu"], "error": ""}
DEAD = {"cluster": "", "conf": "/etc/slurm/slurm.conf", "partitions": [], "error": "slurmctld does not answer"}


def view(*clusters: dict[str, Any], found: Any = None, **answers: Any) -> View:
    return View({"job_recovery_slurm": True, "job_recovery_kubernetes": True, **answers},
                {"clusters": list(clusters), **(found or {})})


def test_every_row_is_a_setting_of_a_role_and_every_test_a_topic() -> None:
    known: set[str] = set()
    for role in ("job_recovery", "ledger"):
        known |= set(yaml.safe_load((ROLES / role / "defaults/main.yml").read_text()))
    assert set(ROWS) <= known
    assert len(ROWS) == len(QUESTIONS)
    assert set(TESTS) <= {topic for topic, _rows in topics()}
    assert all(bool(row.vault) is (row.kind == SECRET) for row in QUESTIONS)


@pytest.mark.parametrize(("seen", "asked"), [
    (view(ALPHA), False),
    (view(ALPHA, BETA), True),
    (view(ALPHA, DEAD), False),
    (view(ALPHA, BETA, job_recovery_slurm=False), False),
])
def test_a_cluster_is_asked_for_where_there_are_several(seen: View, asked: bool) -> None:
    assert bool(ROWS["job_recovery_slurm_conf"].needed(seen)) is asked


def test_the_name_of_a_cluster_chooses_it() -> None:
    assert ROWS["job_recovery_slurm_conf"].default(view(ALPHA, BETA)) is None
    assert ROWS["job_recovery_slurm_conf"].default(view(ALPHA, BETA, job_recovery_cluster="beta")) == BETA["conf"]
    assert ROWS["job_recovery_slurm_conf"].default(view(ALPHA, BETA, job_recovery_cluster="alpha")) == ""


def test_what_is_missing_lists_what_there_is() -> None:
    text = missing_text(ROWS["job_recovery_slurm_conf"], view(ALPHA, BETA))
    assert "alpha = ''" in text
    assert "beta = '/cm/beta/slurm.conf'" in text
    assert "a, b" in missing_text(ROWS["job_recovery_kubernetes_context"], view(found={"contexts": ["a", "b"]}))


@pytest.mark.parametrize(("variable", "text", "value"), [
    ("job_recovery_slurm", "Yes", True),
    ("job_recovery_slurm", "n", False),
    ("job_recovery_slurm_conf", "2", "/cm/beta/slurm.conf"),
    ("job_recovery_slurm_conf", "alpha", ""),
    ("job_recovery_partitions", " batch,  debug batch ", ["batch", "debug"]),
    ("job_recovery_namespaces", "anything", ["anything"]),  # nobody knows which there are
    ("job_recovery_mode", "act", "act"),
    ("ledger_admin_unix_socket", "-", ""),
    ("ledger_admin_password", " a'\"$ {{ x }} ", " a'\"$ {{ x }} "),
    ("job_recovery_chart_repository", "oci://nvcr.io/nvidia", "oci://nvcr.io/nvidia"),
])
def test_answers(variable: str, text: str, value: Any) -> None:
    assert understand(ROWS[variable], text, view(ALPHA, BETA, job_recovery_slurm_conf="")) == value


@pytest.mark.parametrize(("variable", "text"), [
    ("job_recovery_slurm", "maybe"),
    ("job_recovery_slurm_conf", "3"),
    ("job_recovery_slurm_conf", "gamma"),
    ("job_recovery_cluster", "my cluster"),
    ("job_recovery_cluster", ""),
    ("job_recovery_partitions", "batch, gpu"),
    ("job_recovery_partitions", " , "),
    ("job_recovery_mode", "perhaps"),
    ("ledger_admin_unix_socket", "mysqld.sock"),
    ("job_recovery_ledger_host", "a;b"),
    ("job_recovery_chart_repository", "oci://user:secret@nvcr.io"),
    ("job_recovery_loki_url", "loki"),
])
def test_what_is_no_answer_is_said(variable: str, text: str) -> None:
    with pytest.raises(BadInput):
        understand(ROWS[variable], text, view(ALPHA, BETA, job_recovery_slurm_conf=""))


def test_a_secret_that_is_no_answer_is_not_shown() -> None:
    with pytest.raises(BadInput) as error:
        understand(ROWS["job_recovery_bmc_password"], "geheim\x07", View())
    assert "geheim" not in str(error.value)


@pytest.mark.parametrize(("variable", "value"), [
    ("job_recovery_slurm", "perhaps"),
    ("job_recovery_slurm_conf", "/nowhere"),
    ("job_recovery_partitions", "batch"),
    ("job_recovery_partitions", ["gpu"]),
    ("job_recovery_mode", "Act"),
    ("job_recovery_cluster", 7),
])
def test_given_values_are_checked(variable: str, value: Any) -> None:
    with pytest.raises(BadInput, match=variable):
        check_given(ROWS[variable], value, view(ALPHA, BETA, job_recovery_slurm_conf=""))


@pytest.mark.parametrize(("variable", "value", "yes"), [
    ("job_recovery_cluster", "", False),
    ("job_recovery_partitions", [], False),
    ("ledger_admin_password", "", True),  # where the server knows the account by the socket
    ("job_recovery_bmc_password", "", False),
    ("job_recovery_loki_url", "", True),
    ("job_recovery_slurm_conf", "", True),  # the one that Slurm's commands find
    ("job_recovery_kubernetes", False, True),
    ("job_recovery_cluster", None, False),
])
def test_nothing_is_an_answer_only_where_it_can_be_one(variable: str, value: Any, yes: bool) -> None:
    assert is_answer(ROWS[variable], value, view(ALPHA, BETA)) is yes


def test_what_follows_is_not_asked() -> None:
    seen = view(BETA, found={"slurm_bin_dir": "/cm/local/apps/slurm/current/bin", "contexts": ["a"]})
    assert derived(seen) == {
        "job_recovery_slurm_bin_dir": "/cm/local/apps/slurm/current/bin",
        "job_recovery_slurm_conf": "/cm/beta/slurm.conf",
        "job_recovery_kubernetes_context": "a",
    }
    assert derived(view(ALPHA, found={"contexts": ["a"], "current_context": "a"})) == {}
    assert table.to_bool("off") is None
