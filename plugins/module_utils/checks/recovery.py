# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module `recovery_status`: does the service run, hear, see and write: checks like those before the installation.

It asks what a watchdog asks (module_utils/recovery/watchdog.py) and shows each answer; with a canary it proves the way
from an event to a playbook and into the ledger as it is now.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Mapping, Optional, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks.model import (
    FAILED,
    PASSED,
    UNKNOWN,
    WARNING,
    Check,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import BadInput, RecoveryError
from ansible_collections.mission_control.job_recovery.plugins.module_utils.nodes.process import run_bounded
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import canary, heartbeat, stop
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.dispatch import CANARY_EVERY
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.incident import caller
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.schema import VERSION
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.store import (
    Store,
    open_store,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.overview import lines, overview
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import (
    ACT,
    Settings,
    load,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.watchdog import (
    CANARY_LATE,
    SILENT_AFTER,
)

SPEC: dict[str, Any] = {
    "argument_spec": {
        "settings": {"type": "path"},
        "sources": {"type": "list", "elements": "str", "required": True},
        "canary": {"type": "bool", "default": False},
        "canary_timeout": {"type": "float", "default": 60.0},
        "service": {"type": "str", "default": "job-recovery.service"},
        "watchdog": {"type": "str", "default": "job-recovery-watchdog"},
        "timeout": {"type": "float", "default": 10.0},
    },
    "supports_check_mode": True,
}

_JOURNAL = "`journalctl -u job-recovery` on the controller tells why"
_PROPERTIES = ("LoadState", "ActiveState", "SubState", "Result")


@dataclass(frozen=True)
class Ledger:
    """What the ledger tells; ages in seconds.

    Attributes:
        stopped: why recovery is stopped, empty where it is not.
        restored: whether it was restored from a backup that nobody has approved.
        going_on, for_a_person: open incidents.
        broken: kinds of targets, node and job, of which so many repairs failed that no other one is begun.
        canary: the last one that was sent, and the last that arrived.
        now: its clock, epoch seconds.
        proof: seconds that a canary took that was asked for; None = it did not come, or none was asked for.
        standing: what goes on, what is left to people, what was refused and done last, as printable lines.
    """

    stopped: str
    restored: bool
    going_on: int
    for_a_person: int
    canary: canary.Canary
    now: float
    proof: Optional[float] = None
    broken: tuple[str, ...] = ()
    standing: tuple[str, ...] = ()


def run(params: dict[str, Any], check_mode: bool) -> dict[str, Any]:
    """The module: `{changed: false, checks: [...], standing: [line]}`.

    Reads, and with `canary` sends one event that changes nothing.

    Raises:
        BadInput: time-outs that are none, or settings that are not usable. Unreadable: no settings can be read.
    """
    if params["timeout"] <= 0 or params["canary_timeout"] <= 0:
        raise BadInput("recovery_status: a time-out must be more than 0 seconds")
    settings = load(params["settings"])
    wanted = params["canary"] and not check_mode
    told = ask_ledger(settings, params["canary_timeout"] if wanted else 0.0)
    checks = [
        service_check(unit(params["service"], params["timeout"])),
        watchdog_check(
            unit(params["watchdog"] + ".timer", params["timeout"]),
            unit(params["watchdog"] + ".service", params["timeout"]),
        ),
        *source_checks(heartbeat.read_all(settings), params["sources"], time.time()),
        *ledger_checks(told, settings, params["canary_timeout"] if wanted else None),
    ]
    standing = list(told.standing) if isinstance(told, Ledger) else []
    return {"changed": False, "checks": [check.as_dict() for check in checks], "standing": standing}


def unit(name: str, seconds: float) -> Any:
    """What systemd tells of a unit (a mapping of properties), or the error why nobody knows."""
    argv = ["systemctl", "show", *("--property=" + one for one in _PROPERTIES), "--", name]
    try:
        ended = run_bounded(argv, time.monotonic() + seconds, 65536)
    except RecoveryError as exc:
        return exc
    if ended.timed_out or ended.rc != 0:
        said = "no answer in %.0f s" % seconds if ended.timed_out else ended.stderr.strip() or "rc %d" % ended.rc
        return RecoveryError("systemd tells nothing of %s (%s)" % (name, said))
    return dict(line.split("=", 1) for line in ended.stdout.splitlines() if "=" in line)


def ask_ledger(settings: Settings, canary_seconds: float) -> Any:
    """What the ledger tells, after a canary where seconds are given for it; or the error why nobody knows."""
    try:
        with open_store(settings.ledger) as store:
            proof = canary.prove(store, caller(), canary_seconds) if canary_seconds else None
            return _read(settings, store, proof)
    except RecoveryError as exc:
        return exc


def _read(settings: Settings, store: Store, proof: Optional[float]) -> Ledger:
    seen = overview(settings, store)
    return Ledger(
        stopped=seen["stopped"],
        restored=seen["restored"],
        going_on=len(seen["going_on"]),
        for_a_person=len(seen["for_a_person"]),
        broken=tuple(kind for kind, state in seen["breaker"].items() if state["broken"]),
        standing=tuple(lines(seen)),
        canary=canary.read(store),
        now=store.now(),
        proof=proof,
    )


# ---- judgement, pure ----


def service_check(told: Any) -> Check:
    """Is the service active."""
    title, required = "The recovery's service", "job-recovery.service is active"
    if isinstance(told, RecoveryError):
        return Check("recovery_service", title, required, str(told), UNKNOWN, "ask systemctl on the controller")
    found = "%s (%s)" % (told.get("ActiveState", "unknown"), told.get("SubState", "unknown"))
    if told.get("LoadState") == "not-found":
        found = "not installed"
    status = PASSED if told.get("ActiveState") == "active" else FAILED
    hint = "" if status == PASSED else "`systemctl start job-recovery`; " + _JOURNAL
    return Check("recovery_service", title, required, found, status, hint)


def watchdog_check(timer: Any, last: Any) -> Check:
    """Is the timer active that restarts a deaf engine, and how did its last look end."""
    title, required = "The recovery's watchdog", "its timer is active and its last look was good"
    if isinstance(timer, RecoveryError):
        return Check("recovery_watchdog", title, required, str(timer), UNKNOWN, "ask systemctl on the controller")
    state = timer.get("ActiveState", "unknown") if timer.get("LoadState") != "not-found" else "not installed"
    result = "" if isinstance(last, RecoveryError) else last.get("Result", "")
    if state != "active":
        hint = "`systemctl enable --now job-recovery-watchdog.timer`"
        return Check("recovery_watchdog", title, required, "timer: %s" % state, FAILED, hint)
    good = result in ("", "success")
    found = "timer: active, last look: %s" % (result or "not yet")
    hint = "" if good else "`journalctl -u job-recovery-watchdog` on the controller tells what it saw"
    return Check("recovery_watchdog", title, required, found, PASSED if good else WARNING, hint)


def source_checks(beats: Sequence[Mapping[str, Any]], expected: Sequence[str], now: float) -> list[Check]:
    """One check for each event source that must be there: does it show signs of life, and does it see."""
    by_name = {beat["name"]: beat for beat in beats}
    return [_source_check(name, by_name.get(name), now) for name in expected]


def _source_check(name: str, beat: Optional[Mapping[str, Any]], now: float) -> Check:
    hint = ""
    if beat is None:
        status, found, hint = FAILED, "no sign of life", _JOURNAL
    elif now - beat["at"] > SILENT_AFTER:
        status, found = FAILED, "silent for %.0f s" % (now - beat["at"])
        hint = "the watchdog restarts the service within three minutes; " + _JOURNAL
    elif beat["error"]:
        status, found = FAILED, "hears (%.0f s ago), and: %s" % (now - beat["at"], beat["error"])
        hint = "nothing is known of that side now, so nothing is done there; repair what it names"
    else:
        status, found = PASSED, "hears and sees (%.0f s ago)" % max(0.0, now - beat["at"])
    title = "Event source %s" % name
    required = "a look within the last %.0f s" % SILENT_AFTER
    return Check("recovery_source_%s" % name, title, required, found, status, hint)


def ledger_checks(told: Any, settings: Settings, canary_seconds: Optional[float]) -> list[Check]:
    """Ledger, canary, emergency stop and open incidents; all unknown where the ledger tells nothing."""
    if isinstance(told, RecoveryError):
        by_file = stop.stopped_by_file(settings.stop_file)
        return [
            _ledger("%s; nothing new is begun" % told, FAILED, "bring the database back"),
            _canary("the ledger tells nothing", UNKNOWN, "bring the database back"),
            _stopped(by_file, settings.mode) if by_file else _stopped_unknown(),
        ]
    return [
        _ledger_check(told),
        canary_check(told, canary_seconds),
        _stopped(told.stopped, settings.mode),
        _breaker(told.broken),
        _incidents(told.going_on, told.for_a_person),
    ]


def _ledger_check(told: Ledger) -> Check:
    if told.restored:
        found = "restored from an old backup: recovery only observes"
        return _ledger(found, FAILED, "`job-recovery approve` when the ledger is good as it is")
    return _ledger("answers, tables of version %d" % VERSION, PASSED, "")


def canary_check(told: Ledger, canary_seconds: Optional[float]) -> Check:
    """Does an event travel the whole way: one that was just asked for, or the last of those that go every few minutes.

    Args:
        canary_seconds: how long one was waited for; None = none was asked for.
    """
    hint = "the engine takes no event or its playbooks do not end; " + _JOURNAL
    if canary_seconds is not None:
        if told.proof is None:
            return _canary("an event that was asked for did not arrive within %.0f s" % canary_seconds, FAILED, hint)
        return _canary("an event that was asked for arrived after %.1f s" % told.proof, PASSED, "")
    bird = told.canary
    if bird.sent_at is None:
        return _canary("none was ever sent", FAILED, "start the service; the first is sent at once")
    sent_ago = told.now - bird.sent_at
    if bird.way is None and sent_ago <= CANARY_LATE:
        return _canary("sent %.0f s ago, on its way" % sent_ago, WARNING, "look again in three minutes")
    if bird.way is None:
        return _canary("sent %.0f s ago, has not arrived" % sent_ago, FAILED, hint)
    if sent_ago > CANARY_EVERY + CANARY_LATE:
        return _canary("none was sent for %.0f s" % sent_ago, FAILED, "the source ledger does not look; " + _JOURNAL)
    return _canary("sent %.0f s ago, arrived after %.1f s" % (sent_ago, bird.way), PASSED, "")


def _ledger(found: str, status: str, hint: str) -> Check:
    return Check("recovery_ledger", "The ledger", "the database answers", found, status, hint)


def _canary(found: str, status: str, hint: str) -> Check:
    required = "an event travels to a playbook and into the ledger"
    return Check("recovery_canary", "The way of an event", required, found, status, hint)


def _stopped(why: str, mode: str) -> Check:
    found = why or ("running, and acts" if mode == ACT else "running, and only observes")
    hint = "`job-recovery resume` ends the stop" if why else ""
    return Check(
        "recovery_stopped", "The emergency stop", "nobody has stopped it", found, WARNING if why else PASSED, hint
    )


def _stopped_unknown() -> Check:
    return Check(
        "recovery_stopped",
        "The emergency stop",
        "nobody has stopped it",
        "the file is not there; the ledger tells nothing",
        UNKNOWN,
        "bring the database back",
    )


def _breaker(broken: Sequence[str]) -> Check:
    found = "the last repairs of %s failed; no other one is begun" % " and ".join("%ss" % kind for kind in broken)
    return Check(
        "recovery_breaker",
        "The breaker",
        "repairs do not fail one after the other",
        found if broken else "closed",
        FAILED if broken else PASSED,
        "look why, then `job-recovery reset-breaker`" if broken else "",
    )


def _incidents(going_on: int, for_a_person: int) -> Check:
    found = "%d going on, %d for a person" % (going_on, for_a_person)
    hint = "`job-recovery status` tells which, why and what to do" if for_a_person else ""
    return Check(
        "recovery_incidents",
        "Open incidents",
        "none waits for a person",
        found,
        WARNING if for_a_person else PASSED,
        hint,
    )
