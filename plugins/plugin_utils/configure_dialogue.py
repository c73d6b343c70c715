# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The dialogue of `configure.yml`: rows of the table in, answers out. Asking, testing and saving are handed in."""

from __future__ import annotations

from typing import Any, Callable, Mapping, Optional, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.configure import questions as table
from ansible_collections.mission_control.job_recovery.plugins.module_utils.configure.questions import (
    CHOICE,
    NAMES,
    SECRET,
    YES_NO,
    Question,
    View,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import BadInput, RecoveryError
from ansible_collections.mission_control.job_recovery.plugins.plugin_utils.configure_tests import (
    FAILED,
    PASSED,
    Outcome,
)

Ask = Callable[[str, bool], str]  # the prompt and whether it is a secret in, the line out
Tell = Callable[[str], None]
Look = Callable[[View], Mapping[str, Any]]


class NobodyThere(Exception):
    """There is no terminal; found out by asking, because that belongs to another process."""


class Dialogue:
    """One run.

    Args:
        view: what is known; gets the answers.
        given: the variables that have a value already, from the inventory or the command line.
        test: tries a topic.
        looks: by variable, what is looked up as soon as it is answered; its result is merged into `view.found`.
        ask: asks a person; None where there is nobody.
        tell: shows a line.
        save: called with the answers: after each topic that a person has answered, so that an interrupted run is gone
            on with, and at the end; never while something that nobody can be asked for is missing.
    """

    def __init__(
        self,
        view: View,
        given: Mapping[str, Any],
        test: Callable[[str, View], Optional[Outcome]],
        looks: Mapping[str, Look],
        ask: Optional[Ask],
        tell: Tell,
        save: Callable[[Mapping[str, Any]], None],
    ) -> None:
        self._view = view
        self._given = dict(given)
        self._test = test
        self._looks = looks
        self._ask = ask
        self._tell = tell
        self._save = save
        self._missing: list[str] = []
        self._problems: list[str] = []

    def run(self) -> None:
        """Answer and test everything.

        Raises:
            BadInput: nobody can be asked, and something is missing or does not work; everything that is, at once.
        """
        self._view.answers.update(self._given)
        for topic, rows in table.topics():
            self._topic(topic, rows)
        if self._missing:
            self._problems.insert(0, "these have no value: %s" % "; ".join(self._missing))
        if self._problems:
            raise BadInput(
                "configure: " + ". ".join(self._problems), "set the variables, or run it where it can ask (a terminal)"
            )
        self._save(self._view.answers)

    def _topic(self, topic: str, rows: Sequence[Question]) -> None:
        while True:
            before = len(self._missing) + len(self._problems)
            asked = self._answers(rows)
            if len(self._missing) + len(self._problems) > before:
                return  # a test of half an answer tells nothing
            outcome = self._test(topic, self._view)
            if outcome is None or outcome.status != FAILED:
                break
            if self._ask is None or not asked:
                self._problems.append(outcome.message)
                return
            self._tell("  This does not work: %s" % outcome.message)
            for variable in asked:
                self._view.answers.pop(variable, None)
        if outcome is not None:
            self._view.found.update(outcome.found)
            if outcome.message:
                self._tell("  %s%s" % ("" if outcome.status == PASSED else "Could not be tested: ", outcome.message))
        if self._ask is not None and asked:
            self._save(self._view.answers)

    def _answers(self, rows: Sequence[Question]) -> list[str]:
        """Answer what has no answer; returns the variables that a person was asked for."""
        asked = []
        for row in rows:
            if not row.needed(self._view):
                continue
            try:
                if row.variable in self._given:
                    self._view.answers[row.variable] = table.check_given(row, self._given[row.variable], self._view)
                    self._look(row)
                else:
                    asked += self._answer(row)
            except RecoveryError as exc:  # of what was given: nobody can answer that better
                self._problems.append(str(exc))
        return asked

    def _answer(self, row: Question) -> list[str]:
        default = row.default(self._view)
        if self._ask is None:
            if default is None:
                self._missing.append(table.missing_text(row, self._view))
            else:
                self._view.answers[row.variable] = default
                self._look(row)
            return []
        while True:
            try:
                line = self._ask(prompt(row, self._view, default), row.kind == SECRET)
            except NobodyThere:
                self._ask = None
                return self._answer(row)
            try:
                if line or default is None:
                    self._view.answers[row.variable] = table.understand(row, line, self._view)
                else:
                    self._view.answers[row.variable] = default
                self._look(row)
                return [row.variable]
            except RecoveryError as exc:
                self._view.answers.pop(row.variable, None)
                self._tell("  %s" % exc)

    def _look(self, row: Question) -> None:
        look = self._looks.get(row.variable)
        if look is not None:
            self._view.found.update(look(self._view))


def prompt(row: Question, view: View, default: Any) -> str:
    """What the person sees, with what there is to choose from and what an empty answer means."""
    lines = [row.text]
    known = row.choices(view)
    if row.kind == CHOICE:
        lines += ["  %d) %s%s" % (number, item.name, "  (%s)" % item.about if item.about else "")
                  for number, item in enumerate(known, 1)]
    elif row.kind == NAMES and known:
        lines.append("  there are: %s" % ", ".join(known))
    return "\n".join(lines) + _offer(row, view, default) + ": "


def _offer(row: Question, view: View, default: Any) -> str:
    if row.kind == YES_NO:
        return " [yes]" if default is True else " [yes/no]"
    if row.kind == SECRET or default is None or (default == "" and row.kind != CHOICE):
        return ""
    return " [%s]" % next((item.name for item in row.choices(view) if item.value == default), default)
