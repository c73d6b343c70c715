# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The checks as one HTML page that needs nothing else: no script, no other file, no network. Pure.

Found values are other people's words: every text is escaped, control and direction characters are shown as blanks, and
the page forbids itself scripts and requests (Content-Security-Policy), so that nothing in it can run.
"""

from __future__ import annotations

import html
from typing import Mapping, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks.model import (
    FAILED,
    PASSED,
    UNKNOWN,
    WARNING,
)

_WORDS = {
    FAILED: ("not met", "✗"),
    UNKNOWN: ("cannot tell", "?"),
    WARNING: ("with a warning", "!"),
    PASSED: ("met", "✓"),
}

_STYLE = """
:root { color-scheme: light dark; --text: #1c2024; --soft: #5b6470; --line: #d8dee6; --page: #f5f7f9; --card: #fff;
  --failed: #b3261e; --unknown: #6b3fa0; --warning: #8a5a00; --passed: #1b6e3c }
@media (prefers-color-scheme: dark) { :root { --text: #e6e9ed; --soft: #a2acb8; --line: #38414c; --page: #14181d;
  --card: #1c2229; --failed: #ff8a80; --unknown: #c9a5ff; --warning: #f0c060; --passed: #7bd69b } }
* { box-sizing: border-box }
body { margin: 0; background: var(--page); color: var(--text);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif }
main { max-width: 72rem; margin: 0 auto; padding: 2rem 1.25rem 3rem }
h1 { margin: 0 0 .25rem; font-size: 1.6rem }
.verdict { margin: 0 0 1.25rem; font-size: 1.1rem; font-weight: 600 }
.counts { display: flex; flex-wrap: wrap; gap: .75rem; margin: 0 0 1.5rem; padding: 0; list-style: none }
.counts li { flex: 1 1 9rem; padding: .6rem .9rem; background: var(--card); border: 1px solid var(--line);
  border-left: 4px solid var(--tone); border-radius: 6px }
.counts b { display: block; color: var(--tone); font-size: 1.5rem; line-height: 1.2 }
table { width: 100%; border-collapse: collapse; background: var(--card); border: 1px solid var(--line);
  border-radius: 6px }
th, td { padding: .6rem .8rem; border-top: 1px solid var(--line); text-align: left; vertical-align: top;
  overflow-wrap: anywhere }
thead th { border-top: 0; color: var(--soft); font-size: .85rem; font-weight: 600 }
.state { width: 8.5rem; color: var(--tone); font-weight: 600; white-space: nowrap; overflow-wrap: normal }
.state span { display: inline-block; width: 1.1rem }
td b { display: block } code { color: var(--soft); font-size: .85rem }
.hint { margin-top: .35rem; padding-left: .7rem; border-left: 3px solid var(--tone) }
.failed { --tone: var(--failed) } .unknown { --tone: var(--unknown) } .warning { --tone: var(--warning) }
.passed { --tone: var(--passed) }
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
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="referrer" content="no-referrer">',
            "<title>%s</title>" % _text("%s: %s" % (title, verdict)),
            "<style>%s</style>" % _STYLE,
            "</head>",
            "<body>",
            "<main>",
            "<h1>%s</h1>" % _text(title),
            '<p class="verdict %s" style="color: var(--tone)">%s</p>' % (tone, _text(verdict)),
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
            "</main>",
            "</body>",
            "</html>",
            "",
        ]
    )


def _row(check: Mapping[str, str]) -> str:
    status = check["status"]
    hint = '<div class="hint">%s</div>' % _text(check["hint"]) if check["hint"] and status != PASSED else ""
    return (
        '<tr class="%s"><td class="state"><span aria-hidden="true">%s</span>%s</td><td><b>%s</b><code>%s</code></td>'
        '<td data-name="Found">%s%s</td><td data-name="Required">%s</td></tr>'
    ) % (
        status,
        _WORDS[status][1],
        status,
        _text(check["title"]),
        _text(check["id"]),
        _text(check["found"]),
        hint,
        _text(check["required"]),
    )


def _text(text: str) -> str:
    """Harmless in an element and in an attribute."""
    return html.escape("".join(letter if letter.isprintable() else " " for letter in text), quote=True)
