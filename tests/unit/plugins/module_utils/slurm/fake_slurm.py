# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stands in for scontrol, squeue, sinfo, sacct and sacctmgr where a healthy cluster cannot show a case.

It keeps nodes and jobs in the JSON file that FAKE_SLURM names, notes every call there, and refuses arguments that it
does not know. `hooks` in that file change the state by themselves: {"before update State=RESUME": {...}}.
"""

from __future__ import annotations

import json
import os
import sys
import time


def main() -> int:
    path = os.environ["FAKE_SLURM"]
    with open(path, encoding="utf-8") as file:
        world = json.load(file)
    tool, arguments = os.path.basename(sys.argv[0]), sys.argv[1:]
    world.setdefault("calls", []).append([tool, *arguments])
    world.setdefault("environment", {k: v for k, v in os.environ.items() if k.startswith(("SLURM", "SQ", "TZ", "LC"))})
    try:
        return answer(world, tool, arguments)
    finally:
        with open(path, "w", encoding="utf-8") as file:
            json.dump(world, file)


def answer(world: dict, tool: str, arguments: list[str]) -> int:
    said = world.get("says", {}).get(tool)
    if said:
        time.sleep(said.get("sleep", 0))
        sys.stdout.write(said.get("stdout", ""))
        sys.stderr.write(said.get("stderr", ""))
        return said.get("rc", 0)
    if tool == "scontrol":
        return scontrol(world, [word for word in arguments if word != "--all"])
    if tool == "squeue":
        return squeue(world, arguments)
    if tool == "sacctmgr":
        return sacctmgr(world, arguments)
    return refuse(tool, arguments)


def refuse(tool: str, arguments: list[str]) -> int:
    sys.stderr.write("%s: fake: unknown arguments %r\n" % (tool, arguments))
    return 97


def say(**answer: list) -> None:
    json.dump({**answer, "errors": []}, sys.stdout)


def hook(world: dict, name: str) -> None:
    change = world.get("hooks", {}).pop(name, {})
    for node, fields in change.get("nodes", {}).items():
        world["nodes"][node].update(fields)
    for job, fields in change.get("jobs", {}).items():
        world["jobs"][job].update(fields)
    if change.get("events"):
        world.setdefault("events", []).extend(change["events"])
    world.setdefault("says", {}).update(change.get("says", {}))


def scontrol(world: dict, arguments: list[str]) -> int:
    if arguments[:3] == ["--json", "show", "node"]:
        names = expand(arguments[3]) if len(arguments) > 3 else list(world["nodes"])
        say(nodes=[dict(node, name=name) for name, node in world["nodes"].items() if name in names])
        return 0
    if arguments[:1] == ["update"] and arguments[1].startswith("NodeName="):
        return update_node(world, dict(word.split("=", 1) for word in arguments[1:]))
    if arguments[:1] == ["update"] and arguments[1].startswith("JobId="):
        return update_job(world, dict(word.split("=", 1) for word in arguments[1:]))
    if arguments[0] in ("requeue", "release") and len(arguments) == 2:
        return requeue_or_release(world, arguments[0], arguments[1])
    return refuse("scontrol", arguments)


def expand(text: str) -> list[str]:
    """Only what the tests use: n1 and n[1-3,5]."""
    if "[" not in text:
        return text.split(",")
    prefix, inner = text.rstrip("]").split("[")
    names = []
    for part in inner.split(","):
        first, _dash, last = part.partition("-")
        names += ["%s%d" % (prefix, number) for number in range(int(first), int(last or first) + 1)]
    return names


def update_node(world: dict, words: dict[str, str]) -> int:
    unknown = set(words) - {"NodeName", "State", "Reason"}
    if unknown:
        return refuse("scontrol", sorted(unknown))
    hook(world, "before %s" % words["State"])
    refusal = world.get("refuse_update")
    if refusal:
        sys.stderr.write("slurm_update error: %s\n" % refusal)
        return 1
    for name in expand(words["NodeName"]):
        node = world["nodes"][name]
        flags = {word for word in node["state"][1:] if word != "DRAIN"}
        base = node["state"][0]
        if words["State"] == "RESUME":
            node.update(state=["IDLE" if base == "DOWN" else base, *sorted(flags)], reason="", reason_set_by_user="")
            continue
        if "Reason" not in words:
            sys.stderr.write("You must specify a reason when DOWNING or DRAINING a node. Request denied\n")
            return 1
        if words["State"] == "DOWN":
            base = "DOWN"
        if words["State"] == "DRAIN" or "DRAIN" in node["state"]:
            flags.add("DRAIN")
        node.update(state=[base, *sorted(flags)], reason=words["Reason"], reason_set_by_user="root",
                    reason_changed_at=int(time.time()))
    hook(world, "after %s" % words["State"])
    return 0


def update_job(world: dict, words: dict[str, str]) -> int:
    if set(words) != {"JobId", "StartTime"} or words["StartTime"] != "now":
        return refuse("scontrol", sorted(words))
    world["jobs"][words["JobId"]]["eligible_time"] = int(time.time())
    hook(world, "after start")
    return 0


def requeue_or_release(world: dict, what: str, job_id: str) -> int:
    hook(world, "before " + what)
    job = world["jobs"][job_id]
    refusal = job.get("refuse")
    if refusal:
        sys.stderr.write("%s for job %s\n" % (refusal, job_id))
        return 1
    if what == "release":
        job.update(priority=1, state_reason="None")
    else:
        job.update(job_state=job.get("becomes", ["PENDING"]), restart_cnt=job["restart_cnt"] + 1)
    hook(world, "after " + what)
    return 0


def squeue(world: dict, arguments: list[str]) -> int:
    if arguments[:2] != ["--all", "--json"]:
        return refuse("squeue", arguments)
    jobs = list(world["jobs"].values())
    for word in arguments[2:]:
        if word.startswith("--jobs="):
            ids = word[7:].split(",")
            jobs = [job for job in jobs if str(job["job_id"]) in ids or
                    "%s_%s" % (job.get("array_job_id"), job.get("array_task_id")) in ids]
        elif word.startswith("--nodelist="):
            pass  # the caller selects again
        elif word != "--states=all":
            return refuse("squeue", arguments)
    say(jobs=jobs)
    hook(world, "after squeue %d" % sum(call[0] == "squeue" for call in world["calls"]))
    return 0


def sacctmgr(world: dict, arguments: list[str]) -> int:
    if arguments[:5] != ["--readonly", "--noheader", "--parsable2", "show", "event"]:
        return refuse("sacctmgr", arguments)
    if world.get("events") is None:
        sys.stderr.write("You are not running a supported accounting_storage plugin\n")
        return 1
    for event in world["events"]:
        sys.stdout.write("|".join(event) + "\n")
    return 0


sys.exit(main())
