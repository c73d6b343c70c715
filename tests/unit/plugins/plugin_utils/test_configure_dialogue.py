# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The dialogue of `configure`: what is asked, in which order, and what happens after each topic."""

from __future__ import annotations

from typing import Any, Callable, Optional

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.configure.questions import View
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import BadInput
from ansible_collections.mission_control.job_recovery.plugins.plugin_utils.configure_dialogue import (
    Dialogue,
    NobodyThere,
)
from ansible_collections.mission_control.job_recovery.plugins.plugin_utils.configure_tests import (
    FAILED,
    PASSED,
    UNKNOWN,
    Outcome,
)

ALPHA = {"cluster": "alpha", "conf": "", "partitions": ["batch", "debug"], "error": ""}
BETA = {"cluster": "beta", "conf": "/b/slurm.conf", "partitions": ["gpu"], "error": ""}
PLAIN = {
    "job_recovery_slurm": True,
    "job_recovery_cluster": "alpha",
    "job_recovery_partitions": ["batch"],
    "job_recovery_kubernetes": False,
}


class Talk:
    """A person who answers by what is asked, and the record of it all."""

    def __init__(self, *clusters: dict[str, Any], given: Optional[dict[str, Any]] = None, **found: Any) -> None:
        self.view = View(found={"clusters": list(clusters), "slurm_bin_dir": "", "sockets": ["/s"], **found})
        self.given = given or {}
        self.answers: dict[str, list[str]] = {}
        self.asked: list[str] = []
        self.secret: list[str] = []
        self.told: list[str] = []
        self.saved: list[dict[str, Any]] = []
        self.tested: list[str] = []
        self.outcomes: dict[str, list[Outcome]] = {}
        self.looks: dict[str, Any] = {}

    def ask(self, prompt: str, secret: bool) -> str:
        self.asked.append(prompt)
        if secret:
            self.secret.append(prompt)
        for begin, lines in self.answers.items():
            if prompt.startswith(begin) and lines:
                return lines.pop(0)
        return ""

    def test(self, topic: str, view: View) -> Optional[Outcome]:
        self.tested.append(topic)
        outcomes = self.outcomes.get(topic)
        return outcomes.pop(0) if outcomes else Outcome(PASSED)

    def run(self, ask: Optional[Callable[[str, bool], str]]) -> dict[str, Any]:
        Dialogue(self.view, self.given, self.test, self.looks, ask, self.told.append,
                 lambda answers: self.saved.append(dict(answers))).run()
        return self.view.answers


def nobody(prompt: str, secret: bool) -> str:
    raise NobodyThere


def test_nothing_is_asked_where_everything_is_given() -> None:
    talk = Talk(ALPHA, given={**PLAIN, "job_recovery_mode": "act", "ledger_admin_unix_socket": "/s",
                              "ledger_admin_user": "root", "ledger_admin_password": "", "job_recovery_bmc_user": "",
                              "job_recovery_chart_repository": "", "job_recovery_loki_url": ""})
    talk.run(talk.ask)
    assert talk.asked == []
    assert talk.saved == [talk.view.answers]


def test_only_what_is_missing_is_asked() -> None:
    talk = Talk(ALPHA, given={**PLAIN, "ledger_admin_user": "dba"})
    talk.answers = {"Socket": ["-"], "Its password": ["geheim"]}
    answers = talk.run(talk.ask)
    assert [text.split()[0] for text in talk.asked] == [
        "Shall", "Socket", "Address", "Its", "Account", "Chart", "Loki's",
    ]
    assert talk.secret == ["Its password (empty where the server knows the account by the socket): "]
    assert (answers["ledger_admin_unix_socket"], answers["job_recovery_ledger_host"]) == ("", "127.0.0.1")
    assert answers["ledger_admin_password"] == "geheim"
    assert answers["job_recovery_mode"] == "observe"


def test_a_choice_shows_what_there_is() -> None:
    talk = Talk(ALPHA, BETA, given={"job_recovery_kubernetes": False})
    talk.answers = {"Which Slurm": ["7", "beta"], "Slurm partitions": ["batch", "gpu"]}
    answers = talk.run(talk.ask)
    (first, second) = [text for text in talk.asked if text.startswith("Which Slurm")]
    assert first == second == "Which Slurm cluster\n  1) alpha  (by default)\n  2) beta  (/b/slurm.conf): "
    assert any("not one of: alpha, beta" in line for line in talk.told)
    assert any("there is no 'batch'" in line for line in talk.told)
    assert answers["job_recovery_slurm_conf"] == "/b/slurm.conf"
    assert answers["job_recovery_cluster"] == "beta"  # offered, and taken


def test_what_does_not_work_is_asked_again_and_saved_only_when_it_works() -> None:
    talk = Talk(ALPHA, given={**PLAIN, "job_recovery_mode": "observe"})
    talk.answers = {"Its password": ["wrong", "right"]}
    talk.outcomes = {"database": [Outcome(FAILED, "Access denied"), Outcome(PASSED, "it takes root")]}
    talk.run(talk.ask)
    assert talk.tested.count("database") == 2
    assert "  This does not work: Access denied" in talk.told
    assert talk.saved[0]["ledger_admin_password"] == "right"


def test_what_was_given_and_does_not_work_is_an_error() -> None:
    talk = Talk(ALPHA, given={**PLAIN, "ledger_admin_unix_socket": "/s", "ledger_admin_user": "root",
                              "ledger_admin_password": "wrong"})
    talk.outcomes = {"database": [Outcome(FAILED, "Access denied")]}
    with pytest.raises(BadInput, match="Access denied") as error:
        talk.run(talk.ask)
    assert "wrong" not in str(error.value)


@pytest.mark.parametrize("ask", [None, nobody])
def test_where_nobody_is_there_everything_that_is_missing_is_named_at_once(ask: Any) -> None:
    talk = Talk(ALPHA, BETA, kubeconfig="/k")
    talk.looks = {"job_recovery_kubernetes_admin_kubeconfig": lambda _view: {"contexts": ["a", "b"]}}
    with pytest.raises(BadInput) as error:
        talk.run(ask)
    for words in ("job_recovery_slurm_conf (Which Slurm cluster: alpha = '', beta = '/b/slurm.conf')",
                  "job_recovery_cluster", "job_recovery_partitions",
                  "job_recovery_kubernetes_context (Which Kubernetes cluster (context of that kubeconfig): a, b)",
                  "job_recovery_namespaces"):
        assert words in str(error.value)
    assert talk.saved == []


def test_where_nobody_is_there_the_only_one_is_taken() -> None:
    talk = Talk(ALPHA, given={"job_recovery_partitions": ["batch"], "job_recovery_kubernetes": False})
    answers = talk.run(None)
    assert (answers["job_recovery_cluster"], answers["ledger_admin_unix_socket"]) == ("alpha", "/s")
    assert talk.saved == [answers]


def test_what_cannot_be_tested_is_said_and_no_reason_to_stop() -> None:
    talk = Talk(ALPHA, given=PLAIN)
    talk.outcomes = {"database": [Outcome(UNKNOWN, "no client")]}
    talk.run(None)
    assert "  Could not be tested: no client" in talk.told


def test_what_a_test_finds_is_offered_afterwards() -> None:
    talk = Talk(given={"job_recovery_slurm": False, "job_recovery_cluster": "c", "job_recovery_kubernetes": True,
                       "job_recovery_kubernetes_admin_kubeconfig": "/k"})
    talk.outcomes = {"kubernetes": [Outcome(PASSED, "answers", {"namespaces": ["ml", "web"]})]}
    talk.answers = {"Kubernetes namespaces": ["ml"]}
    talk.run(talk.ask)
    assert any("there are: ml, web" in text for text in talk.asked)


def test_a_given_value_that_cannot_be_one_is_an_error() -> None:
    with pytest.raises(BadInput, match="job_recovery_mode is 'perhaps'"):
        Talk(ALPHA, given={**PLAIN, "job_recovery_mode": "perhaps"}).run(None)
