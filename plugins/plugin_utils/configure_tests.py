# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The test that follows each topic of `configure.yml`, at once.

`TESTS` is the table: a topic of module_utils/configure/questions.py and the function that tries its answers. A function
gets what is known and the `Site` to try it on, and says how it went; what it found on the way is offered with the
questions after it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, Mapping, Optional, Sequence

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks import loki as loki_check
from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks import registry as registry_check
from ansible_collections.mission_control.job_recovery.plugins.module_utils.configure import found
from ansible_collections.mission_control.job_recovery.plugins.module_utils.configure.questions import View
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import RecoveryError
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.client import KubernetesClient

PASSED = "passed"
FAILED = "failed"
UNKNOWN = "unknown"  # could not be tried; said, and no reason to stop


@dataclass(frozen=True)
class Outcome:
    """How a test went.

    Attributes:
        status: `passed`, `failed` or `unknown`.
        message: for a person.
        found: what is to be offered with later questions, by its name in `View.found`.
    """

    status: str
    message: str = ""
    found: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Site:
    """Where tests are made.

    Attributes:
        on_head: runs a module of this collection on the head node: name and arguments in, its result out.
        timeout: seconds for each thing that is asked.
    """

    on_head: Callable[[str, Mapping[str, Any]], Mapping[str, Any]]
    timeout: int = 10


def slurm(view: View, site: Site) -> Outcome:  # noqa: ARG001 - slurmctld was asked when the clusters were found
    """slurmctld of the chosen cluster answers."""
    if not view.yes("job_recovery_slurm"):
        return Outcome(PASSED)
    cluster = view.cluster
    if cluster is not None:
        return Outcome(PASSED, "Slurm cluster %s answers" % cluster["cluster"])
    errors = [item["error"] for item in view.found.get("clusters", []) if item["error"]]
    return Outcome(
        FAILED,
        "no Slurm cluster answers on the head node: %s"
        % ("; ".join(errors) or "no slurm.conf and no scontrol was found; set job_recovery_slurm_bin_dir and _conf"),
    )


def kubernetes(view: View, site: Site) -> Outcome:
    """The API server takes the kubeconfig's credentials, and they may list nodes and namespaces."""
    if not view.yes("job_recovery_kubernetes"):
        return Outcome(PASSED)
    contexts = view.found.get("contexts", [])
    context = view.answers.get("job_recovery_kubernetes_context") or (contexts[0] if len(contexts) == 1 else "")
    client = KubernetesClient(view.answers["job_recovery_kubernetes_admin_kubeconfig"], context, site.timeout)
    try:
        version = client.get("/version").get("gitVersion", "")
        nodes = client.list("/api/v1/nodes").items
        namespaces = sorted(item["metadata"]["name"] for item in client.list("/api/v1/namespaces").items)
    except RecoveryError as exc:
        return Outcome(FAILED, str(exc))
    finally:
        client.close()
    return Outcome(PASSED, "Kubernetes %s answers, %d nodes" % (version, len(nodes)), {"namespaces": namespaces})


def namespaces(view: View, site: Site) -> Outcome:  # noqa: ARG001 - the cluster's were listed before
    """Every namespace is there: one that is misspelt would allow nothing, silently."""
    known, named = view.found.get("namespaces"), view.answers.get("job_recovery_namespaces") or []
    missing = [name for name in named if known is not None and name not in known]
    if not missing:
        return Outcome(PASSED)
    return Outcome(FAILED, "there is no namespace %s; there are: %s" % (", ".join(missing), ", ".join(known)))


def database(view: View, site: Site) -> Outcome:
    """The database server takes the administrator's account, from the head node."""
    answers = view.answers
    asked = {
        "user": answers.get("ledger_admin_user", "root"),
        "password": answers.get("ledger_admin_password", ""),
        "unix_socket": answers.get("ledger_admin_unix_socket", ""),
        "host": answers.get("job_recovery_ledger_host", "127.0.0.1"),
        "port": int(answers.get("job_recovery_ledger_port", 3306)),
    }
    result = site.on_head("configure_info", {"database": asked, "slurm_confs": [], "timeout": site.timeout})
    told = result.get("database") or {"status": found.UNKNOWN, "message": result.get("msg", "no answer")}
    if told["status"] == found.OK:
        return Outcome(PASSED, "the database server takes the account %s" % asked["user"])
    where = asked["unix_socket"] or "%(host)s:%(port)d" % asked
    message = "database server %s, account %s: %s" % (where, asked["user"], told["message"])
    return Outcome(UNKNOWN if told["status"] == found.UNKNOWN else FAILED, message)


def registry(view: View, site: Site) -> Outcome:
    """The chart repository, or its registry, answers and accepts the account. Asked from this machine, as helm will."""
    address = view.answers.get("job_recovery_chart_repository", "")
    if not address:
        return Outcome(PASSED)
    password = view.answers.get("job_recovery_registry_password", "")
    account = {"username": view.answers.get("job_recovery_registry_user", "") if password else "", "password": password}
    place, kind = {"registry": address[len(_OCI) :].split("/")[0]}, "registries"
    if not address.startswith(_OCI):
        place, kind = {"url": address}, "repositories"
    asked = {kind: [{**place, **account, "ca_file": view.answers.get("charts_ca_file", "")}]}
    asked.update(request_timeout=site.timeout, deadline=2 * site.timeout)
    result, trouble = _checked(registry_check, asked)
    if trouble is None and result["results"][0]["answer"] == "untrusted":  # no answer of this dialogue mends that
        return Outcome(UNKNOWN, "%s; set charts_ca_file" % result["results"][0]["why"])
    return trouble or _judged(result["checks"], "%s answers, and accepts the account" % address)


def loki(view: View, site: Site) -> Outcome:
    """Loki's API answers through its Ingress to the account; whether also to strangers is told."""
    url = view.answers.get("job_recovery_loki_url", "")
    if not url:
        return Outcome(PASSED)
    names = ("address", "user", "password", "tenant")
    asked = {name: view.answers.get("job_recovery_loki_" + name, "") for name in names}
    asked.update(url=url, ca_file=view.answers.get("job_recovery_loki_ca") or None, timeout=float(site.timeout))
    result, trouble = _checked(loki_check, asked)
    return trouble or _judged(result["checks"], "%s answers to the account" % url)


_OCI = "oci://"
# What is wrong with the cluster and not with an answer: it is told, and asking again would not help.
_OF_THE_CLUSTER = ("loki_closed",)


def _checked(module: Any, asked: Mapping[str, Any]) -> tuple[dict[str, Any], Optional[Outcome]]:
    """The result of a check module, run in this process; or how it cannot be asked so."""
    validated = ArgumentSpecValidator(module.SPEC["argument_spec"]).validate(asked)
    try:
        return module.run(validated.validated_parameters, False), None
    except RecoveryError as exc:
        return {}, Outcome(FAILED, str(exc))


def _judged(checks: Sequence[Mapping[str, str]], good: str) -> Outcome:
    """What checks tell of the answers."""
    told = {
        status: ["%s: %s" % (check["title"], check["found"]) for check in checks
                 if check["status"] == status and check["id"] not in _OF_THE_CLUSTER]
        for status in (FAILED, UNKNOWN)
    }
    for status, words in told.items():
        if words:
            return Outcome(status, "; ".join(words))
    notes = ["%s: %s" % (check["title"], check["found"]) for check in checks if check["status"] != PASSED]
    return Outcome(PASSED, "; ".join([good, *notes]))


TESTS: Mapping[str, Callable[[View, Site], Outcome]] = {
    "slurm": slurm,
    "kubernetes": kubernetes,
    "namespaces": namespaces,
    "database": database,
    "registry": registry,
    "loki": loki,
}
