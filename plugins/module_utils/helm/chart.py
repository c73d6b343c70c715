# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module `helm_chart`: a release has the wanted chart and values, or is gone.

Read what is there, fetch and check the chart, decide, act, and prove by the cluster's own objects that the workloads
are ready; where they are not, say which pod and why.
"""

from __future__ import annotations

import json
import os
import re
import time
from dataclasses import replace
from typing import Any, Callable, Optional, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import (
    Absent,
    BadInput,
    Conflict,
    Forbidden,
    RecoveryError,
    TimedOut,
    Unreachable,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.helm import account as accounts
from ansible_collections.mission_control.job_recovery.plugins.module_utils.helm import plan as plans
from ansible_collections.mission_control.job_recovery.plugins.module_utils.helm import release as releases
from ansible_collections.mission_control.job_recovery.plugins.module_utils.helm import source as sources
from ansible_collections.mission_control.job_recovery.plugins.module_utils.helm import workloads
from ansible_collections.mission_control.job_recovery.plugins.module_utils.helm.command import (
    Ended,
    Helm,
    helms_at,
    interruptible,
    private_folder,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes import credentials
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.client import (
    KubernetesClient,
    path_of,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.reading import printable

SPEC: dict[str, Any] = {
    "argument_spec": {
        "name": {"type": "str", "required": True},
        "namespace": {"type": "str", "required": True},
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "chart": {"type": "str"},
        "repository": {"type": "str"},
        "version": {"type": "str"},
        "digest": {"type": "str"},
        "keyring": {"type": "path", "no_log": False},
        "values": {"type": "dict", "default": {}},
        "username": {"type": "str"},
        "password": {"type": "str", "no_log": True},
        "password_file": {"type": "path", "no_log": False},
        "docker_config": {"type": "path"},
        "ca_file": {"type": "path"},
        "plain_http": {"type": "bool", "default": False},
        "create_namespace": {"type": "bool", "default": True},
        "take_ownership": {"type": "bool", "default": False},
        "wait": {"type": "bool", "default": True},
        "timeout": {"type": "int", "default": 600},
        "repair": {"type": "bool", "default": False},
        "repair_after": {"type": "int", "default": 600},
        "only_own": {"type": "bool", "default": False},
        "helm": {"type": "str", "default": "helm"},
        "work_dir": {"type": "path"},
        "kubeconfig": {"type": "str", "default": ""},
        "context": {"type": "str", "default": ""},
        "request_timeout": {"type": "int", "default": 10},
    },
    "mutually_exclusive": [("password", "password_file", "docker_config"), ("username", "docker_config")],
    "required_if": [("state", "present", ("chart",))],
    "supports_check_mode": True,
}

Tell = Callable[[str], None]

_RELEASE = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,51}[a-z0-9])?\Z")
_NAMESPACE = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?\Z")
_LOOK_SECONDS = 3.0
_REPEAT_SECONDS = 30.0
# What is left of the time after helm's own waiting, for helm to write down how it ended.
_RESERVE = 10.0


def run(params: dict[str, Any], check_mode: bool) -> dict[str, Any]:
    """The module; see its documentation for what comes back."""
    return run_and_tell(params, check_mode, tell=lambda _line: None)


def run_and_tell(params: dict[str, Any], check_mode: bool, tell: Tell) -> dict[str, Any]:
    """The module, with one line for each progress to `tell`. Raises one of this collection's errors."""
    _require_names(params)
    client = KubernetesClient(params["kubeconfig"], params["context"], float(params["request_timeout"]))
    work_dir = params["work_dir"] or ""
    try:
        with interruptible(), private_folder(work_dir) as folder:
            return _Run(params, client, folder, tell).run(check_mode)
    except OSError as exc:
        raise sources.disk_full(exc, exc.filename or work_dir or "the temporary folder") from exc
    finally:
        client.close()


def _require_names(params: dict[str, Any]) -> None:
    for option, what, pattern in (("name", "release", _RELEASE), ("namespace", "namespace", _NAMESPACE)):
        if not pattern.match(params[option]):
            raise BadInput(
                "%r is no name of a %s" % (printable(params[option]), what), "use small letters, digits and dashes"
            )
    if params["timeout"] <= 0:
        raise BadInput("timeout must be above zero")


class _Run:
    """One run for one release."""

    def __init__(self, params: dict[str, Any], client: KubernetesClient, folder: Any, tell: Tell) -> None:
        self._params, self._client, self._folder = params, client, folder
        self._name, self._namespace = params["name"], params["namespace"]
        self._story = _Story(tell, "%s/%s" % (self._namespace, self._name))
        self._until = time.monotonic() + params["timeout"]
        self._source: Optional[sources.Source] = None
        self._account: Optional[accounts.Account] = None

    def run(self, check_mode: bool) -> dict[str, Any]:
        if self._params["state"] == "absent":
            return self._absent(check_mode)
        self._source = sources.parse(self._params)
        self._account = accounts.read(self._params, self._source.host or "the chart")
        self._require_no_secret()
        before, repaired = self._usable(self._look(), check_mode)
        wanted, chart = self._wanted(before)
        plan = plans.plan_present(wanted, before)
        if plan.action == plans.REFUSE:
            raise Conflict(
                "release %s in %s: %s" % (self._name, self._namespace, "; ".join(plan.because)),
                "choose another name, or set state: absent first",
            )
        because = repaired + list(plan.because)
        changed = bool(repaired) or plan.action != plans.NOTHING
        after = _side_wanted(wanted)
        if check_mode or plan.action == plans.NOTHING:
            if not check_mode and self._params["wait"] and before is not None:
                self._await_ready(before)
            return self._result(before, before, after, changed, because)
        self._story.tell("%s: %s" % (plan.action, "; ".join(plan.because)))
        return self._result(before, self._deploy(chart, wanted, before), after, True, because)

    # ---- state: absent ----

    def _absent(self, check_mode: bool) -> dict[str, Any]:
        before = self._look()
        plan = plans.plan_absent(before, self._params["only_own"])
        changed = plan.action == plans.UNINSTALL
        if changed and not check_mode:
            self._require_no_helm()
            self._uninstall(before)
        kept = before if not changed else None
        return self._result(before, kept, _side(kept), changed, list(plan.because))

    def _uninstall(self, there: releases.Release) -> None:
        self._story.tell("uninstall: %s %s" % (there.chart, there.version))
        helm = self._helm()
        args = ["uninstall", self._name, *self._where(helm), "--wait", "--ignore-not-found"]
        ended = helm.run(args, outlives=True)
        left = self._look_after("uninstall", ended)
        if left is None or left.status == releases.UNINSTALLED:
            return
        raise self._failure("uninstall", ended, left, [])

    # ---- state: present ----

    def _require_no_secret(self) -> None:
        secrets = self._account.secrets if self._account is not None else ()
        places = plans.secrets_in(self._params["values"], secrets)
        if places:
            raise BadInput(
                "the values of release %s hold a credential, at %s" % (self._name, ", ".join(places)),
                "put it into a Secret and refer to that, because Helm keeps values where many can read them",
            )

    def _look(self) -> Optional[releases.Release]:
        return releases.newest(self._client, self._namespace, self._name)

    def _look_after(self, verb: str, ended: Ended) -> Optional[releases.Release]:
        """What helm has left; when that cannot be read, what helm said may still tell why."""
        try:
            return self._look()
        except Unreachable as exc:
            raise type(exc)(
                "%s of release %s in %s: how far it came is not known (%s)" % (verb, self._name, self._namespace, exc),
                "run again when the API server answers; what was interrupted is told then",
                rc=ended.rc,
                stderr=printable(ended.stderr.strip(), 1500),
            ) from exc

    def _usable(
        self, there: Optional[releases.Release], check_mode: bool
    ) -> tuple[Optional[releases.Release], list[str]]:
        """A release that is not in the middle of something, after a repair where one was asked for."""
        if there is None or (there.status not in releases.PENDING and there.status != releases.UNINSTALLING):
            return there, []
        stuck = "release %s in %s is %s (%s)" % (self._name, self._namespace, there.status, _standing(there))
        fields = {"release": _described(there)}
        if not self._params["repair"]:
            raise Conflict(
                "%s: another operation is in progress, or was interrupted" % stuck,
                "wait for it; if nobody works on it any more, run again with repair: true",
                **fields,
            )
        helms = helms_at(self._name, self._params["helm"])
        refused = plans.refuse_repair(there, time.time(), helms, self._params["repair_after"])
        if refused:
            raise Conflict("%s and is not repaired: %s" % (stuck, refused), **fields)
        said = ["revision %d was %s and is repaired" % (there.revision, there.status)]
        if check_mode:
            return replace(there, status=releases.FAILED), said
        self._story.tell(said[0])
        self._mark_failed(there)
        return self._look(), said

    def _mark_failed(self, there: releases.Release) -> None:
        """Compare and swap: when somebody's helm has written meanwhile, nothing is changed."""
        why = "%s was interrupted; marked as failed by mission_control.job_recovery" % there.status
        patch = releases.marked_failed(there, why, time.time())
        self._client.patch(path_of("v1", "secrets", self._namespace, there.secret), patch)

    def _wanted(self, there: Optional[releases.Release]) -> tuple[plans.Wanted, Optional[sources.Chart]]:
        """What the release shall be, and the chart; no chart is fetched when its digest proves that it is deployed."""
        source, values = self._source, self._params["values"] or {}
        pinned = frozenset([source.digest]) if source.digest else frozenset()
        if (
            there is not None
            and there.status == releases.DEPLOYED
            and source.exact
            and there.version == source.version
            and pinned & there.digests
            and plans.same_values(there.values, values)
        ):
            return plans.Wanted(there.chart, there.version, pinned, values, pinned=True), None
        chart = sources.fetch(source, self._account, self._helm(), self._folder)
        self._folder.forget("registry", "helm_config_home")  # the account is needed no more
        return plans.Wanted(chart.name, chart.version, chart.digests, values, bool(source.digest)), chart

    def _deploy(
        self, chart: Optional[sources.Chart], wanted: plans.Wanted, before: Optional[releases.Release]
    ) -> releases.Release:
        helm = self._helm()
        args = ["upgrade", "--install", self._name, chart.path, *self._where(helm)]
        args += ["--reset-values", "--values", "-", "--description", releases.description(wanted.digests)]
        if before is None or before.status == releases.UNINSTALLED:
            # never on what somebody else has installed: uninstall.yml removes what bears it
            args += ["--labels", "%s=%s" % (releases.OWNER_LABEL, releases.OWNER)]
        args += ["--create-namespace"] if self._params["create_namespace"] else []
        args += self._ownership(helm) if self._params["take_ownership"] else []
        args += ["--wait"] if self._params["wait"] else []
        begun = before.revision if before is not None else 0
        progress = _Progress(self._client, self._story, self._namespace, self._name, begun + 1)
        ended = helm.run(args, json.dumps(wanted.values), tick=progress, interval=_LOOK_SECONDS, outlives=True)
        there = self._look_after("upgrade" if begun else "install", ended)
        if there is None or there.revision <= begun or there.status != releases.DEPLOYED or ended.rc != 0:
            fresh = there if there is not None and there.revision > begun else None
            raise self._failure("upgrade" if begun else "install", ended, fresh, self._states(fresh))
        if self._params["wait"]:
            self._await_ready(there)
        return there

    def _states(self, there: Optional[releases.Release]) -> list[workloads.State]:
        """The workloads for an explanation: whatever can be read of them."""
        try:
            return workloads.look(self._client, there) if there is not None else []
        except RecoveryError:
            return []

    def _await_ready(self, there: releases.Release) -> None:
        """Ready by the cluster's own objects. Helm has waited already; somebody may have interrupted that, though."""
        while True:
            states = workloads.look(self._client, there)
            waiting = workloads.unready(states)
            if not waiting:
                return
            self._story.progress(there.status, states)
            if time.monotonic() + _LOOK_SECONDS >= self._until:
                raise TimedOut(
                    "release %s in %s is deployed and not ready after %d s: %s"
                    % (self._name, self._namespace, self._params["timeout"], _explained(states)),
                    "",
                    **_fields(there, states),
                )
            time.sleep(_LOOK_SECONDS)

    # ---- calls of helm ----

    def _helm(self) -> Helm:
        secrets = self._account.secrets if self._account is not None else ()
        return Helm(self._params["helm"], self._folder, self._until, secrets)

    def _where(self, helm: Helm) -> list[str]:
        if helm.left <= _RESERVE / 2:
            raise TimedOut(
                "release %s in %s: the time is over before anything was begun" % (self._name, self._namespace),
                "give a longer timeout",
            )
        own = max(1, int(helm.left - min(_RESERVE, helm.left / 2)))
        path = self._params["kubeconfig"] or os.environ.get("KUBECONFIG", "")
        args = ["--namespace", self._namespace, "--timeout", "%ds" % own]
        args += ["--kubeconfig", os.path.expanduser(path)] if path and path != credentials.IN_CLUSTER else []
        args += ["--kube-context", self._params["context"]] if self._params["context"] else []
        return args

    @staticmethod
    def _ownership(helm: Helm) -> list[str]:
        """Helm 4 applies on the server, where fields have owners as well; Helm 3 knows no option for them."""
        version = helm.run(["version", "--template", "{{.Version}}"]).stdout.strip()
        return ["--take-ownership"] if version.startswith("v3.") else ["--take-ownership", "--force-conflicts"]

    def _require_no_helm(self) -> None:
        helms = helms_at(self._name, self._params["helm"])
        if helms:
            raise Conflict(
                "release %s in %s: helm works on it (process %s)"
                % (self._name, self._namespace, ", ".join(str(pid) for pid in helms)),
                "wait for it",
            )

    def _failure(
        self, verb: str, ended: Ended, there: Optional[releases.Release], states: Sequence[workloads.State]
    ) -> RecoveryError:
        what = "%s of release %s in %s" % (verb, self._name, self._namespace)
        said = printable(ended.stderr.strip().replace("\n", "; "), 1500)
        explained = _explained(states)
        fields = dict(_fields(there, states), rc=ended.rc, stderr=said)
        if ended.timed_out:
            words = "%s did not end within %d s" % (what, self._params["timeout"])
            return TimedOut("%s: %s" % (words, explained or said or "helm said nothing"), _AGAIN, **fields)
        kind, meaning, next_step = _meaning(ended.stderr)
        if explained and kind in (RecoveryError, TimedOut):
            return kind("%s failed: %s" % (what, explained), "run again when that is mended", **fields)
        words = "%s failed: %s" % (what, meaning or said or "helm said nothing")
        return kind(words + (" (%s)" % said if meaning and said else ""), next_step, **fields)

    # ---- results ----

    def _result(
        self,
        before: Optional[releases.Release],
        there: Optional[releases.Release],
        after: dict[str, Any],
        changed: bool,
        because: list[str],
    ) -> dict[str, Any]:
        result = {
            "changed": changed,
            "because": because,
            "release": _described(there),
        }
        if changed:
            result["diff"] = {"before": _side(before), "after": after}
        return result


class _Progress:
    """Tells, whenever it is called, how the revision that is being made is doing."""

    def __init__(self, client: KubernetesClient, story: _Story, namespace: str, name: str, revision: int) -> None:
        self._client, self._story = client, story
        self._key = (namespace, name, revision)
        self._release: Optional[releases.Release] = None

    def __call__(self) -> None:
        if self._release is None:  # its manifest does not change any more
            self._release = releases.find(self._client, *self._key)
        if self._release is not None:
            self._story.progress(self._release.status, workloads.look(self._client, self._release))


class _Story:
    """Progress for a person: a line when something is new, and one now and then while nothing is."""

    def __init__(self, tell: Tell, title: str) -> None:
        self._tell, self._title = tell, title
        self._last, self._at = "", 0.0

    def tell(self, words: str) -> None:
        self._tell("chart %s: %s" % (self._title, printable(words, 1000)))

    def progress(self, status: str, states: Sequence[workloads.State]) -> None:
        line = "%s, %s" % (status, workloads.summary(states))
        if line != self._last or time.monotonic() - self._at >= _REPEAT_SECONDS:
            self._last, self._at = line, time.monotonic()
            self.tell(line)


_AGAIN = "run again: what is done stays done"
_TAKE = "remove them, or set take_ownership: true to make them its own"

# What helm says when it could not deploy, in the order in which it is looked for.
_MEANINGS: tuple[tuple[str, type[RecoveryError], str, str], ...] = (
    (
        r"another operation .*in progress",
        Conflict,
        "somebody else works on it at this moment",
        "wait for it and run again",
    ),
    (
        r"cannot be imported into the current release|invalid ownership metadata",
        Conflict,
        "objects of its are there already and do not belong to it",
        _TAKE,
    ),
    (r"conflict(?:s)? with \"|apply failed with \d+ conflict", Conflict, "others own fields of its objects", _TAKE),
    (
        r"cluster unreachable|connection re(?:fused|set)|\beof\b|no such host|no route to host|i/o timeout|etcdserver",
        Unreachable,
        "the API server did not answer, and how far it came is not known",
        "run again when the API server answers",
    ),
    (r"no space left on device", RecoveryError, "no space is left on this machine", "free some, or set work_dir"),
    (
        r"of the schema|execution error|parse error|template:|error validating|no matches for|invalid:|typed patch",
        BadInput,
        "the chart and its values make no valid objects",
        "correct the values",
    ),
    (r"namespaces \".*\" not found", Absent, "its namespace is not there", "make it, or set create_namespace: true"),
    (r"\bforbidden\b|cannot (?:create|patch|update|get|list|delete) resource", Forbidden, "not allowed", ""),
    (r"timed out|deadline exceeded|timeout|not ready|context canceled", TimedOut, "", _AGAIN),
)


def _meaning(stderr: str) -> tuple[type[RecoveryError], str, str]:
    for pattern, kind, meaning, next_step in _MEANINGS:
        if re.search(pattern, stderr, re.IGNORECASE):
            return kind, meaning, next_step
    return RecoveryError, "", ""


def _explained(states: Sequence[workloads.State]) -> str:
    """The troubles of what is not ready, or what that is where nobody knows why."""
    waiting = [state for state in states if not state.done]
    found = [str(trouble) for state in waiting for trouble in state.troubles]
    more = len(found) - 5
    return "; ".join(found[:5] + (["and %d more" % more] if more > 0 else [])) or "; ".join(
        state.words + " ready" for state in workloads.unready(states)
    )


def _fields(there: Optional[releases.Release], states: Sequence[workloads.State]) -> dict[str, Any]:
    return {
        "release": _described(there),
        "troubles": [trouble.as_dict() for state in states for trouble in state.troubles],
    }


def _described(there: Optional[releases.Release]) -> Optional[dict[str, Any]]:
    if there is None:
        return None
    return {
        "name": there.name,
        "namespace": there.namespace,
        "revision": there.revision,
        "status": there.status,
        "chart": there.chart,
        "version": there.version,
        "digests": sorted(there.digests),
        "own": there.own,
    }


def _side(there: Optional[releases.Release]) -> dict[str, Any]:
    """One side of a diff."""
    if there is None or there.status == releases.UNINSTALLED:
        return {}
    return {
        "chart": there.chart,
        "version": there.version,
        "digests": sorted(there.digests),
        "status": there.status,
        "values": dict(there.values),
    }


def _side_wanted(wanted: plans.Wanted) -> dict[str, Any]:
    return {
        "chart": wanted.chart,
        "version": wanted.version,
        "digests": sorted(wanted.digests),
        "status": releases.DEPLOYED,
        "values": dict(wanted.values),
    }


def _standing(there: releases.Release) -> str:
    since = "" if there.since is None else ", since %s" % _moment(there.since)
    beneath = "revision %d is deployed" % there.deployed if there.deployed else "nothing is deployed"
    return "revision %d%s; %s" % (there.revision, since, beneath)


def _moment(since: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(since))
