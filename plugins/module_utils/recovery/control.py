# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command `job-recovery` on the controller: stop and resume the recovery, see what it does.

    job-recovery stop [--reason TEXT]     no new act, from the next moment on
    job-recovery resume
    job-recovery status [--json]          stopped or not, sources, what is open; exit code 1 when something is wrong
    job-recovery incidents [NAME ...] [--since WHEN] [--all] [--json]
    job-recovery approve                  the ledger was restored from a backup and is good
    job-recovery reset-breaker [--reason TEXT]  failed repairs until now do not count any more
    job-recovery migrate                  bring the ledger's tables up to date

`run`, `retry` and `release` are in `by_hand` and `again`. Who stopped, resumed, approved or reset is kept in the
ledger. Stopping works when the database is down: the file alone stops.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from datetime import datetime
from typing import Any, Callable, Mapping, Optional, Sequence, TextIO

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import RecoveryError, Unreadable
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import (
    breaker,
    canary,
    heartbeat,
    stop,
    watchdog,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.incident import caller
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger import database, schema
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.store import (
    Store,
    open_store,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.overview import clock, overview
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.overview import (
    lines as overview_lines,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.report import report
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import Settings, load
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.text import printable
from ansible_collections.mission_control.job_recovery.plugins.module_utils.show import reporter

OK, TROUBLE, USAGE = 0, 1, 2
# Commands that run as the service's account, by the launcher.
_ELSEWHERE = {
    "run": "a remediation by hand",
    "retry": "an incident that was left to a person, once more",
    "release": "a quarantined node that is good again",
}
_WHEN = "10m, 2h or 3d ago, a date (2026-01-31 or '2026-01-31 23:45'), or epoch seconds"
_AGO = re.compile(r"\s*(\d{1,6}(?:\.\d{1,6})?)\s*([smhd])\s*\Z", re.ASCII)
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def main(argv: Optional[Sequence[str]] = None, out: Optional[TextIO] = None) -> int:
    """Run the command; its exit code: 0 done and well, 1 trouble (said on stderr or in the status), 2 wrong use."""
    options = _parser().parse_args(argv)
    out = out or sys.stdout
    try:
        code = _COMMANDS[options.command](load(options.settings), options, out)
        out.flush()
        return code
    except BrokenPipeError:  # whoever reads has seen enough, as `head` has
        os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())  # or Python complains when it flushes at its end
        return TROUBLE
    except RecoveryError as exc:
        sys.stderr.write("job-recovery: %s\n" % printable(str(exc)))
        return TROUBLE


def stop_recovery(settings: Settings, who: str, reason: str) -> str:
    """Stop: write the file, then the ledger's row; what is to be said about the ledger, empty when all is written.

    Raises:
        Unreadable: the file cannot be written.
    """
    try:
        with open(settings.stop_file, "w", encoding="utf-8") as handle:
            handle.write("stopped by %s: %s\n" % (printable(who), printable(reason) or "no reason given"))
        os.chmod(settings.stop_file, 0o644)
    except OSError as exc:
        raise Unreadable(
            "the stop file %s cannot be written (%s)" % (settings.stop_file, exc.strerror), "try it as root"
        ) from exc
    try:
        with open_store(settings.ledger) as store:
            store.control.put(stop.STOP, reason, who)
            store.commands.note("stop", who, reason=reason)
    except RecoveryError as exc:
        return "the ledger could not be told (%s); the file alone stops" % exc
    return ""


def resume_recovery(settings: Settings, who: str) -> None:
    """Resume: take the ledger's row away, then the file. When the ledger cannot be told, the file stays and stops.

    Raises:
        RecoveryError: nothing was resumed.
    """
    with open_store(settings.ledger) as store:
        store.control.remove(stop.STOP)
        store.commands.note("resume", who)
    try:
        os.unlink(settings.stop_file)
    except FileNotFoundError:
        pass
    except OSError as exc:
        raise Unreadable(
            "the stop file %s cannot be removed (%s)" % (settings.stop_file, exc.strerror), "try it as root"
        ) from exc


def _stop(settings: Settings, options: argparse.Namespace, out: TextIO) -> int:
    warning = stop_recovery(settings, caller(), options.reason)
    out.write("stopped: no further act. `job-recovery resume` ends this.\n")
    if warning:
        out.write("warning: %s\n" % printable(warning))
    return OK


def _resume(settings: Settings, _options: argparse.Namespace, out: TextIO) -> int:
    resume_recovery(settings, caller())
    out.write("resumed\n")
    return OK


def _status(settings: Settings, options: argparse.Namespace, out: TextIO) -> int:
    if options.json:
        with open_store(settings.ledger) as store:
            _write_json(overview(settings, store), out)
        return OK
    lines = ["cluster: %s" % settings.cluster, "mode: %s" % settings.mode]
    trouble = _source_lines(settings, lines)
    by_file = stop.stopped_by_file(settings.stop_file)
    try:
        with open_store(settings.ledger) as store:
            seen = overview(settings, store)
            stopped = seen["stopped"]
            trouble |= _ledger_lines(store, seen, lines)
    except RecoveryError as exc:
        stopped, trouble = by_file, True
        lines.append("ledger: %s; nothing new is begun" % exc)
    lines.insert(2, "recovery: %s" % (stopped or "running"))
    out.write("".join("%s\n" % printable(line) for line in lines))
    return TROUBLE if trouble or stopped else OK


def _source_lines(settings: Settings, lines: list[str]) -> bool:
    beats = heartbeat.read_all(settings)
    wanted = [*watchdog.expected(settings), *reporter.expected(settings)]
    missing = [name for name in wanted if name not in {beat["name"] for beat in beats}]
    lines.extend("source %s: no sign of life; is the service running?" % name for name in missing)
    trouble = bool(missing)
    for beat in beats:
        age = time.time() - beat["at"]
        deaf = age > heartbeat.SILENT_AFTER
        trouble |= deaf or bool(beat["error"])
        state = "silent" if deaf else beat["error"] or "well"
        lines.append("source %s: %s (%.0f s ago)" % (beat["name"], state, age))
    return trouble


def _ledger_lines(store: Store, seen: Mapping[str, Any], lines: list[str]) -> bool:
    lines.append("incidents: %d going on, %d for a person" % (len(seen["going_on"]), len(seen["for_a_person"])))
    bird = canary.read(store)
    if bird.sent_at is not None:
        back = "is on its way" if bird.way is None else "came back after %.1f s" % bird.way
        lines.append("canary: sent %.0f s ago, %s" % (store.now() - bird.sent_at, back))
    if seen["restored"]:
        lines.append("ledger: restored from an old backup; only observing until `job-recovery approve`")
    lines += overview_lines(seen)
    return bool(seen["restored"]) or any(state["broken"] for state in seen["breaker"].values())


def _incidents(settings: Settings, options: argparse.Namespace, out: TextIO) -> int:
    since = options.since if options.since is not None else 0.0 if options.all else time.time() - 86400
    with open_store(settings.ledger) as store:
        answer = report(store, names=options.names, since=since, limit=options.limit)
    if options.json:
        _write_json(answer, out)
        return OK
    for incident in reversed(answer["incidents"]):
        for line in _incident_lines(incident):
            out.write(printable(line) + "\n")
    for refusal in reversed(answer["refusals"]):
        out.write(
            printable(
                "%s  refused %s: %s, gate %s: %s (%d times)"
                % (
                    clock(refusal["last_at"]),
                    refusal["target"],
                    refusal["fault_kind"],
                    refusal["gate"],
                    refusal["why"],
                    refusal["times"],
                )
            )
            + "\n"
        )
    return OK


def _write_json(data: Mapping[str, Any], out: TextIO) -> None:
    json.dump(data, out, sort_keys=True)  # ASCII only: control characters stand as escapes
    out.write("\n")


def _incident_lines(incident: dict[str, Any]) -> list[str]:
    lines = [
        "%s  #%d %s: %s, %s%s"
        % (
            clock(incident["opened_at"]),
            incident["id"],
            incident["target"],
            incident["fault_kind"],
            incident["state"],
            " (%s)" % incident["plan"] if incident["plan"] else "",
        )
    ]
    if incident["why"]:
        lines.append("    %s" % incident["why"])
    if incident["waits_for"]:
        lines.append("    waits for %s until %s" % (incident["waits_for"], clock(incident["waits_until"])))
    for step in incident["steps"]:
        ended = step["finished_at"]
        seconds = "%6.1f s" % (ended - step["started_at"]) if ended else "       -"
        why = ": %s" % step["why"] if step["why"] else ""
        lines.append(
            "    +%7.1f s %-16s %s %s%s"
            % (step["started_at"] - incident["seen_at"], step["step"], seconds, step["status"], why)
        )
    return lines


def _approve(settings: Settings, _options: argparse.Namespace, out: TextIO) -> int:
    with open_store(settings.ledger) as store:
        stop.approve(settings, store)
        store.commands.note("approve", caller())
    out.write("approved: the ledger counts as complete\n")
    return OK


def _reset_breaker(settings: Settings, options: argparse.Namespace, out: TextIO) -> int:
    with open_store(settings.ledger) as store:
        breaker.reset(store, caller())
        store.commands.note("reset-breaker", caller(), reason=options.reason)
    out.write("reset: the repairs that failed until now do not count any more\n")
    return OK


def _migrate(settings: Settings, _options: argparse.Namespace, out: TextIO) -> int:
    session = database.connect(settings.ledger)
    try:
        done = schema.migrate(session)
    finally:
        session.close()
    out.write("tables of version %d%s\n" % (schema.VERSION, "" if done else ", nothing to do"))
    return OK


def moment(text: str) -> float:
    """Epoch seconds of a moment that a person gives: so long ago (`90s`, `10m`, `2h`, `3d`), a local date and time
    (`2026-01-31`, `2026-01-31 23:45`), or epoch seconds.

    Raises:
        argparse.ArgumentTypeError: it is none of these.
    """
    ago = _AGO.match(text)
    if ago:
        return time.time() - float(ago.group(1)) * _UNITS[ago.group(2)]
    try:
        return float(text) if text.replace(".", "", 1).isdigit() else datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError("%s is no moment: give %s" % (ascii(text[:40]), _WHEN)) from None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="job-recovery", description="Stop, resume and look at the job recovery.")
    parser.add_argument("--settings", help="settings file (default: the controller's own)")
    commands = parser.add_subparsers(dest="command", required=True)
    stopping = commands.add_parser("stop", help="no new act, from the next moment on")
    stopping.add_argument("--reason", default="", help="shown to whoever asks why")
    commands.add_parser("resume", help="end the stop")
    seeing = commands.add_parser("status", help="is it stopped, do the sources hear, what is open, what can you do")
    seeing.add_argument("--json", action="store_true", help="what the ledger tells, as JSON")
    showing = commands.add_parser("incidents", help="what was done, and what was refused")
    showing.add_argument("names", nargs="*", help="nodes or jobs (default: all)")
    showing.add_argument("--since", type=moment, metavar="WHEN", help="%s (default: a day ago)" % _WHEN)
    showing.add_argument("--all", action="store_true", help="from the beginning")
    showing.add_argument("--limit", type=int, default=1000)
    showing.add_argument("--json", action="store_true", help="as JSON, with every field")
    for name, text in _ELSEWHERE.items():
        commands.add_parser(name, help="%s: job-recovery %s --help" % (text, name))
    commands.add_parser("approve", help="the ledger was restored from a backup and is good as it is")
    resetting = commands.add_parser("reset-breaker", help="failed repairs until now do not count any more")
    resetting.add_argument("--reason", default="", help="kept in the ledger with who reset it")
    commands.add_parser("migrate", help="bring the ledger's tables up to date")
    return parser


def _elsewhere(_settings: Settings, options: argparse.Namespace, out: TextIO) -> int:
    out.write("`{0}` comes first: job-recovery {0} ...\n".format(options.command))
    return USAGE


_COMMANDS: dict[str, Callable[[Settings, argparse.Namespace, TextIO], int]] = {
    "stop": _stop,
    "resume": _resume,
    "status": _status,
    "incidents": _incidents,
    **dict.fromkeys(_ELSEWHERE, _elsewhere),
    "approve": _approve,
    "reset-breaker": _reset_breaker,
    "migrate": _migrate,
}

if __name__ == "__main__":
    raise SystemExit(main())
