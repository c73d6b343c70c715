# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""HTML pages that need nothing else: no script, no other file, no network. Pure.

What they show are other people's words: every text is escaped, control and direction characters are shown as blanks,
and each page forbids itself scripts and requests (Content-Security-Policy), so that nothing in it can run.
"""

from __future__ import annotations

import html
from typing import Any, Sequence

STYLE = """
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
table { width: 100%; border-collapse: collapse; background: var(--card); border: 1px solid var(--line);
  border-radius: 6px }
th, td { padding: .6rem .8rem; border-top: 1px solid var(--line); text-align: left; vertical-align: top;
  overflow-wrap: anywhere }
thead th { border-top: 0; color: var(--soft); font-size: .85rem; font-weight: 600 }
code { color: var(--soft); font-size: .85rem }
.failed { --tone: var(--failed) } .unknown { --tone: var(--unknown) } .warning { --tone: var(--warning) }
.passed { --tone: var(--passed) }
"""


def text(value: Any) -> str:
    """Harmless in an element and in an attribute."""
    return html.escape("".join(letter if letter.isprintable() else " " for letter in str(value)), quote=True)


def document(title: str, style: str, body: Sequence[str]) -> str:
    """A page.

    Args:
        title: plain text; it is escaped here.
        style: what comes after the common style sheet.
        body: the lines of its main element, HTML.
    """
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="referrer" content="no-referrer">',
            "<title>%s</title>" % text(title),
            "<style>%s%s</style>" % (STYLE, style),
            "</head>",
            "<body>",
            "<main>",
            *body,
            "</main>",
            "</body>",
            "</html>",
            "",
        ]
    )
