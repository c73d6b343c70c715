# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The checks as one HTML page; see html_page.py for what keeps it harmless. Pure."""

from __future__ import annotations

from typing import Mapping, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks.model import (
    FAILED,
    PASSED,
    UNKNOWN,
    WARNING,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.html_page import document, text

_WORDS = {
    FAILED: ("not met", "✗"),
    UNKNOWN: ("cannot tell", "?"),
    WARNING: ("with a warning", "!"),
    PASSED: ("met", "✓"),
}

_STYLE = """
.counts { display: flex; flex-wrap: wrap; gap: .75rem; margin: 0 0 1.5rem; padding: 0; list-style: none }
.counts li { flex: 1 1 9rem; padding: .6rem .9rem; background: var(--card); border: 1px solid var(--line);
  border-left: 4px solid var(--tone); border-radius: 6px }
.counts b { display: block; color: var(--tone); font-size: 1.5rem; line-height: 1.2 }
.state { width: 8.5rem; color: var(--tone); font-weight: 600; white-space: nowrap; overflow-wrap: normal }
.state span { display: inline-block; width: 1.1rem }
td b { display: block }
.hint { margin-top: .35rem; padding-left: .7rem; border-left: 3px solid var(--tone) }
@media (max-width: 46rem) { thead { display: none } tr { display: block; padding: .5rem 0;
  border-top: 1px solid var(--line) } td { display: block; width: auto; border: 0; padding: .2rem .8rem }
  td[data-name]::before { content: attr(data-name); display: block; color: var(--soft); font-size: .8rem } }
@media print { body { background: #fff } tr { break-inside: avoid } }
"""


def page(title: str, checks: Sequence[Mapping[str, str]], counts: Mapping[str, int]) -> str:
    """The page.

    Args:
        checks: sorted as they shall stand there.
        counts: number of checks by status.
    """
    unmet = counts.get(FAILED, 0) + counts.get(UNKNOWN, 0)
    verdict = "%d of %d requirements are not met." % (unmet, len(checks)) if unmet else "All requirements are met."
    tone = FAILED if unmet else WARNING if counts.get(WARNING) else PASSED
    return document(
        "%s: %s" % (title, verdict),
        _STYLE,
        [
            "<h1>%s</h1>" % text(title),
            '<p class="verdict %s" style="color: var(--tone)">%s</p>' % (tone, text(verdict)),
            '<ul class="counts">',
            *(
                '<li class="%s"><b>%d</b>%s</li>' % (key, counts.get(key, 0), word)
                for key, (word, dummy) in _WORDS.items()
            ),
            "</ul>",
            "<table>",
            "<thead><tr><th>Status</th><th>What</th><th>Found</th><th>Required</th></tr></thead>",
            "<tbody>",
            *map(_row, checks),
            "</tbody>",
            "</table>",
        ],
    )


def _row(check: Mapping[str, str]) -> str:
    status = check["status"]
    hint = '<div class="hint">%s</div>' % text(check["hint"]) if check["hint"] and status != PASSED else ""
    return (
        '<tr class="%s"><td class="state"><span aria-hidden="true">%s</span>%s</td><td><b>%s</b><code>%s</code></td>'
        '<td data-name="Found">%s%s</td><td data-name="Required">%s</td></tr>'
    ) % (
        status,
        _WORDS[status][1],
        status,
        text(check["title"]),
        text(check["id"]),
        text(check["found"]),
        hint,
        text(check["required"]),
    )
