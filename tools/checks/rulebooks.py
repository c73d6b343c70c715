# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks the rulebooks against ansible-rulebook's schema, and that what they name exists in this collection.

ansible-rulebook itself validates neither when it is started with a rulebook's full name: a wrong action or the name of
a playbook that is not there would show only when the fault comes.
"""

from __future__ import annotations

import ast
import pathlib
import sys
from collections.abc import Iterator

import jsonschema
import yaml
from ansible_rulebook.validators import Validate

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
EDA = CHECKOUT / "extensions/eda"
PREFIX = "mission_control.job_recovery."


def main() -> int:
    """Print every problem; the answer is the exit code."""
    rulebooks = sorted((EDA / "rulebooks").glob("*"))
    problems = [problem for path in rulebooks for problem in check_rulebook(path)]
    problems += [problem for path in sorted(EDA.glob("plugins/event_*/*.py")) for problem in check_plugin(path)]
    if not rulebooks:
        problems.append("there is no rulebook")
    print("\n".join(problems) or "%d rulebooks are valid" % len(rulebooks))
    return 1 if problems else 0


def check_rulebook(path: pathlib.Path) -> Iterator[str]:
    """Yield what is wrong with one rulebook."""
    name = path.relative_to(CHECKOUT)
    if path.suffix != ".yml":
        yield "%s: a rulebook that is found by its full name ends in .yml" % name
        return
    rulesets = yaml.safe_load(path.read_text(encoding="utf-8"))
    try:
        Validate.rulebook(rulesets)
    except jsonschema.ValidationError as exc:
        yield "%s: %s: %s" % (name, exc.json_path, exc.message)
        return
    for ruleset in rulesets:
        for folder, plugin in plugins_of(ruleset):
            if plugin.startswith(PREFIX) and not (EDA / "plugins" / folder / (plugin[len(PREFIX) :] + ".py")).exists():
                yield "%s: there is no %s %s" % (name, folder, plugin)
        for playbook in playbooks_of(ruleset):
            if not playbook.startswith(PREFIX):
                yield "%s: playbook %s must be given by its full name" % (name, playbook)
            elif not (CHECKOUT / "playbooks" / (playbook[len(PREFIX) :] + ".yml")).exists():
                yield "%s: there is no playbook %s" % (name, playbook)


def plugins_of(ruleset: dict) -> Iterator[tuple[str, str]]:
    """Yield the folder and the full name of each source and filter of a ruleset."""
    known = {"name", "filters"}
    for source in ruleset["sources"]:
        yield from (("event_source", key) for key in source if key not in known)
        yield from (("event_filter", key) for entry in source.get("filters", []) for key in entry)


def playbooks_of(ruleset: dict) -> Iterator[str]:
    """Yield the playbook of each action that runs one; names made at run time are left out."""
    for rule in ruleset["rules"]:
        for action in [rule["action"]] if "action" in rule else rule.get("actions", []):
            name = action.get("run_playbook", {}).get("name", "")
            if name and "{{" not in name:
                yield name


def check_plugin(path: pathlib.Path) -> Iterator[str]:
    """Yield what the engine would miss in an event source or filter: its `main` with the right arguments."""
    if path.name == "__init__.py":
        return
    functions = {
        node.name: node
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    }
    main_function = functions.get("main")
    name = path.relative_to(CHECKOUT)
    if main_function is None:
        yield "%s: has no function main" % name
    elif path.parent.name == "event_source":
        arguments = [argument.arg for argument in main_function.args.args]
        if not isinstance(main_function, ast.AsyncFunctionDef) or arguments != ["queue", "args"]:
            yield "%s: an event source is `async def main(queue, args)`" % name


if __name__ == "__main__":
    sys.exit(main())
