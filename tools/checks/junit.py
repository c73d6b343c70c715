# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the JUnit reports of pytest and ansible-test into results."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from xml.etree import ElementTree

from .process import Result

# ansible-test writes this for tests that have nothing to look at here, such as those for PowerShell.
NOT_APPLICABLE = "No tests applicable."


def read(part: str, report: pathlib.Path) -> Iterator[Result]:
    """Yield a result for each test case; what was skipped did not pass, what does not apply here is left out.

    A test that passed but whose teardown failed stands twice in pytest's report; it is one test, and it failed.
    """
    cases: dict[str, Result] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        verdict, message = _verdict(case)
        if message == NOT_APPLICABLE:
            continue
        detail = "%s: %s" % (verdict, (message.splitlines() or [""])[0][:120]) if verdict else ""
        name = "::".join(filter(None, (case.get("classname"), case.get("name"))))
        earlier = cases.get(name)
        if earlier is None or earlier.passed:
            cases[name] = Result(part, name, not detail, float(case.get("time") or 0), detail, message)
    yield from cases.values()


def _verdict(case: ElementTree.Element) -> tuple[str, str]:
    """What became of a test case, and the message of that; two empty texts if it passed."""
    for verdict in ("failure", "error", "skipped"):
        element = case.find(verdict)
        if element is not None:
            return verdict, (element.get("message") or element.text or "").strip()
    return "", ""
