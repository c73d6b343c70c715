# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What `configure.yml` asks, as one table: pure. Which answer is offered, which is good, and which test follows it.

A row is a variable of the inventory. Rows of one `topic` belong together: when the last of them is answered, the test
of that name is made (`TESTS` in plugin_utils/configure_tests.py; a topic without one there is not tested), and when it
fails they are asked again. To ask more: a row here; to test more: a function there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Callable, Mapping, Optional, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import BadInput

TEXT = "text"
SECRET = "secret"  # noqa: S105 - a kind of question
NAMES = "names"
YES_NO = "yes_no"
CHOICE = "choice"

_CLUSTER = r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}"


@dataclass(frozen=True)
class Choice:
    """One of several: the variable's value, and how a person names it."""

    value: str
    name: str
    about: str = ""


@dataclass
class View:
    """What is known while asking.

    Attributes:
        answers: by variable, what was given, found or answered so far.
        found: `clusters`, `slurm_bin_dir` and `sockets` (see `configure_info`), `kubeconfig`, `contexts`,
            `current_context`, and, once the cluster was reached, `namespaces`.
    """

    answers: dict[str, Any] = field(default_factory=dict)
    found: dict[str, Any] = field(default_factory=dict)

    def yes(self, variable: str) -> bool:
        """Whether a yes-or-no variable is set and true."""
        return to_bool(self.answers.get(variable)) is True

    @property
    def clusters(self) -> list[dict[str, Any]]:
        """The Slurm clusters whose controller answers."""
        return [cluster for cluster in self.found.get("clusters", []) if not cluster["error"]]

    @property
    def cluster(self) -> Optional[dict[str, Any]]:
        """The Slurm cluster that was chosen, or the only one."""
        if "job_recovery_slurm_conf" in self.answers:
            wanted = self.answers["job_recovery_slurm_conf"]
            return next((cluster for cluster in self.clusters if cluster["conf"] == wanted), None)
        return self.clusters[0] if len(self.clusters) == 1 else None


Ask = Callable[[View], Any]


@dataclass(frozen=True)
class Question:
    """One row.

    Attributes:
        variable: the inventory's variable.
        topic: its group.
        text: what the person is asked.
        kind: `text`, `secret`, `names`, `yes_no` or `choice`.
        needed: whether it is asked at all, seen what is known.
        choices: of a `choice`; of `names`, the names that exist (an empty list: nobody knows).
        default: what an empty answer means, and what is taken where nobody can be asked; None: it must be answered.
        pattern: what the whole of a text must match.
        vault: the name under which a secret is kept in the vault.
    """

    variable: str
    topic: str
    text: str
    kind: str = TEXT
    needed: Ask = lambda _view: True
    choices: Ask = lambda _view: []
    default: Ask = lambda _view: None
    pattern: str = r"[^\x00-\x1f]*"
    vault: str = ""


def _socket(view: View) -> bool:
    return bool(view.answers.get("ledger_admin_unix_socket"))


def _cluster_choices(view: View) -> list[Choice]:
    return [Choice(item["conf"], item["cluster"], item["conf"] or "by default") for item in view.clusters]


def _conf_of_named_cluster(view: View) -> Optional[str]:
    """Where the cluster's name was given, it tells which one is meant."""
    named = [item["conf"] for item in view.clusters if item["cluster"] == view.answers.get("job_recovery_cluster")]
    return named[0] if len(named) == 1 else None


def _context_choices(view: View) -> list[Choice]:
    current = view.found.get("current_context", "")
    return [Choice(name, name, "the current one" if name == current else "") for name in view.found.get("contexts", [])]


QUESTIONS: tuple[Question, ...] = (
    Question(
        "job_recovery_slurm",
        "slurm",
        "Is there Slurm on this cluster",
        YES_NO,
        default=lambda view: True if view.found.get("clusters") else None,
    ),
    Question(
        "job_recovery_slurm_conf",
        "slurm",
        "Which Slurm cluster",
        CHOICE,
        needed=lambda view: view.yes("job_recovery_slurm") and len(view.clusters) > 1,
        choices=_cluster_choices,
        default=_conf_of_named_cluster,
    ),
    Question(
        "job_recovery_cluster",
        "slurm",
        "Name of this cluster in events and reports",
        default=lambda view: (view.cluster or {}).get("cluster") or None,
        pattern=_CLUSTER,
    ),
    Question(
        "job_recovery_partitions",
        "scope",
        "Slurm partitions in which recovery may act (begin small)",
        NAMES,
        needed=lambda view: view.yes("job_recovery_slurm"),
        choices=lambda view: (view.cluster or {}).get("partitions", []),
    ),
    Question(
        "job_recovery_kubernetes",
        "kubernetes",
        "Is there Kubernetes on this cluster",
        YES_NO,
        default=lambda view: True if view.found.get("kubeconfig") else None,
    ),
    Question(
        "job_recovery_kubernetes_admin_kubeconfig",
        "kubernetes",
        "An administrator's kubeconfig on this machine",
        needed=lambda view: view.yes("job_recovery_kubernetes"),
        default=lambda view: view.found.get("kubeconfig") or None,
        pattern=r"[^\x00-\x1f]+",
    ),
    Question(
        "job_recovery_kubernetes_context",
        "kubernetes",
        "Which Kubernetes cluster (context of that kubeconfig)",
        CHOICE,
        needed=lambda view: view.yes("job_recovery_kubernetes") and len(view.found.get("contexts", [])) > 1,
        choices=_context_choices,
    ),
    Question(
        "job_recovery_namespaces",
        "namespaces",
        "Kubernetes namespaces in which recovery may act",
        NAMES,
        needed=lambda view: view.yes("job_recovery_kubernetes"),
        choices=lambda view: view.found.get("namespaces", []),
    ),
    Question(
        "job_recovery_mode",
        "mode",
        "Shall recovery only observe, or act",
        CHOICE,
        choices=lambda _view: [
            Choice("observe", "observe", "writes down what it would do"),
            Choice("act", "act", "does it"),
        ],
        default=lambda _view: "observe",
    ),
    Question(
        "ledger_admin_unix_socket",
        "database",
        "Socket of MySQL or MariaDB on the head node (- for a server that is reached by the network)",
        default=lambda view: (view.found.get("sockets") or [""])[0],
        pattern=r"-|/[^\x00-\x1f]+|",
    ),
    Question(
        "job_recovery_ledger_host",
        "database",
        "Address of the database server",
        needed=lambda view: not _socket(view),
        default=lambda _view: "127.0.0.1",
        pattern=r"[A-Za-z0-9.:_-]+",
    ),
    Question(
        "ledger_admin_user",
        "database",
        "The database administrator's account",
        default=lambda _view: "root",
        pattern=r"[^\x00-\x1f]+",
    ),
    Question(
        "ledger_admin_password",
        "database",
        "Its password (empty where the server knows the account by the socket)",
        SECRET,
        default=lambda _view: "",
        vault="vault_mysql_root_password",
    ),
    Question(
        "job_recovery_bmc_user",
        "bmc",
        "Account on the BMCs (empty: none)",
        default=lambda _view: "",
    ),
    Question(
        "job_recovery_bmc_password",
        "bmc",
        "Its password",
        SECRET,
        needed=lambda view: bool(view.answers.get("job_recovery_bmc_user")),
        vault="vault_bmc_password",
    ),
    Question(
        "job_recovery_chart_repository",
        "registry",
        "Chart repository or registry, oci://HOST/PATH or https://HOST/PATH (empty: none)",
        default=lambda _view: "",
        pattern=r"((oci|https?)://[^\s/@?#]+(/[^\s@?#]*)?)?",
    ),
    Question(
        "job_recovery_registry_user",
        "registry",
        "Its account (NVCR: $oauthtoken, literally)",
        needed=lambda view: bool(view.answers.get("job_recovery_chart_repository")),
        default=lambda _view: "$oauthtoken",
        pattern=r"[^\x00-\x1f:]+",
    ),
    Question(
        "job_recovery_registry_password",
        "registry",
        "Its token (NVCR: nvapi-...; empty: none)",
        SECRET,
        needed=lambda view: bool(view.answers.get("job_recovery_chart_repository")),
        default=lambda _view: "",
        vault="vault_registry_password",
    ),
    Question(
        "job_recovery_loki_url",
        "loki",
        "Loki's address behind its Ingress, https://HOST (empty: none)",
        default=lambda _view: "",
        pattern=r"(https?://[^\s/@?#]+(/[^\s@?#]*)?)?",
    ),
    Question(
        "job_recovery_loki_ca",
        "loki",
        "A file with the authority of its certificate, on this machine (empty: the system's)",
        needed=lambda view: view.answers.get("job_recovery_loki_url", "").startswith("https:"),
        default=lambda _view: "",
    ),
    Question(
        "job_recovery_loki_user",
        "loki",
        "The account that the Ingress wants",
        needed=lambda view: bool(view.answers.get("job_recovery_loki_url")),
    ),
    Question(
        "job_recovery_loki_password",
        "loki",
        "Its password",
        SECRET,
        needed=lambda view: bool(view.answers.get("job_recovery_loki_url")),
        vault="vault_loki_password",
    ),
)


def topics(questions: Sequence[Question] = QUESTIONS) -> list[tuple[str, list[Question]]]:
    """The rows by topic, in the table's order."""
    grouped: dict[str, list[Question]] = {}
    for question in questions:
        grouped.setdefault(question.topic, []).append(question)
    return list(grouped.items())


def understand(question: Question, text: str, view: View) -> Any:
    """The variable's value for what a person typed, or a variable holds.

    Raises:
        BadInput: it is no answer; the message says what would be one.
    """
    text = text if question.kind == SECRET else text.strip()
    if question.kind == YES_NO:
        return _yes_no(text)
    if question.kind == CHOICE:
        return _choice(question.choices(view), text)
    if question.kind == NAMES:
        return _names(question.choices(view), re.split(r"[\s,]+", text))
    if not re.fullmatch(question.pattern, text):
        raise BadInput("%s is no answer to: %s" % (_shown(question, text), question.text))
    return "" if text == "-" else text


def check_given(question: Question, value: Any, view: View) -> Any:
    """The value of a variable that was given, in its type.

    Raises:
        BadInput: it cannot be the variable's value.
    """
    if question.kind == YES_NO:
        answer = to_bool(value)
        if answer is None:
            raise BadInput("%s is %s" % (question.variable, ascii(value)[:80]), "give true or false")
        return answer
    if question.kind == NAMES:
        if not isinstance(value, (list, tuple)) or not all(isinstance(item, str) for item in value):
            raise BadInput("%s is no list of names" % question.variable)
        return _named(question, _names, question.choices(view), list(value))
    if not isinstance(value, str):
        raise BadInput("%s is no text" % question.variable)
    if question.kind == CHOICE:
        known = question.choices(view)
        if known and value not in [item.value for item in known]:
            raise BadInput("%s is %s, not one of: %s" % (question.variable, ascii(value)[:80], _listed(known)))
        return value
    return _named(question, understand, question, value, view)


def is_answer(question: Question, value: Any, view: View) -> bool:
    """Whether a variable's value answers its question: something, or nothing where nothing is an answer."""
    if value is None or (question.kind == NAMES and not value):
        return False
    if question.kind == CHOICE:
        return value != "" or any(item.value == "" for item in question.choices(view))
    return value != "" or question.default(View()) == ""


def missing_text(question: Question, view: View) -> str:
    """What to say of a question that has no answer and cannot be asked."""
    known = question.choices(view)
    return "%s (%s%s)" % (question.variable, question.text, ": " + _listed(known) if known else "")


def to_bool(value: Any) -> Optional[bool]:
    """A yes-or-no value as YAML and the command line spell it; None for anything else."""
    if isinstance(value, bool):
        return value
    return {"true": True, "yes": True, "y": True, "false": False, "no": False, "n": False}.get(str(value).lower())


def _listed(known: Sequence[Any]) -> str:
    """Choices or names for a person, with what a variable must hold to mean them."""
    shown = [
        item if isinstance(item, str) else item.name if item.value == item.name else "%s = %r" % (item.name, item.value)
        for item in known
    ]
    return ", ".join(shown)


def _yes_no(text: str) -> bool:
    answer = to_bool(text)
    if answer is None:
        raise BadInput("please answer yes or no")
    return answer


def _choice(choices: Sequence[Choice], text: str) -> str:
    if text.isdigit() and 1 <= int(text) <= len(choices):
        return choices[int(text) - 1].value
    matching = [item.value for item in choices if text in (item.name, item.value)]
    if len(matching) != 1:
        raise BadInput("%s is not one of: %s" % (ascii(text)[:80], ", ".join(item.name for item in choices)))
    return matching[0]


def _names(known: Sequence[str], words: Sequence[str]) -> list[str]:
    names = list(dict.fromkeys(word for word in words if word))
    if not names:
        raise BadInput("name at least one" + (" of: " + ", ".join(known) if known else ""))
    strange = [name for name in names if known and name not in known]
    if strange:
        raise BadInput("there is no %s; there are: %s" % (ascii(", ".join(strange))[:200], ", ".join(known)))
    return names


def _named(question: Question, function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except BadInput as exc:
        raise BadInput("%s: %s" % (question.variable, exc)) from None


def _shown(question: Question, text: str) -> str:
    return "that" if question.kind == SECRET else ascii(text)[:80]


def derived(view: View) -> Mapping[str, Any]:
    """Settings that follow from what was found, and nobody is asked for."""
    settings: dict[str, Any] = {}
    if view.yes("job_recovery_slurm"):
        if view.found.get("slurm_bin_dir"):
            settings["job_recovery_slurm_bin_dir"] = view.found["slurm_bin_dir"]
        if len(view.clusters) == 1 and view.clusters[0]["conf"]:
            settings["job_recovery_slurm_conf"] = view.clusters[0]["conf"]
    contexts = view.found.get("contexts", [])
    if view.yes("job_recovery_kubernetes") and len(contexts) == 1 and not view.found.get("current_context"):
        settings["job_recovery_kubernetes_context"] = contexts[0]
    return {name: value for name, value in settings.items() if name not in view.answers}
