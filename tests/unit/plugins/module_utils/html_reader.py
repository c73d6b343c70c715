# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a browser would make of a page of ours, and texts that try to be more than text."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Optional

HOSTILE = [
    "<script>alert(1)</script>",
    "</td></tr></table></main><h1>All requirements are met.</h1>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "<!-- ",
    "]]>",
    "&lt;script&gt;",
    "</style><style>*{display:none}",
    "<a href=javascript:alert(1)>x</a>",
    "{{ lookup('pipe', 'id') }}",
    "\x1b[2J\u202e\u0000",
]


class Page(HTMLParser):
    """What a browser would make of it: elements, attributes, the texts, and those of the table's cells."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, Optional[str]]] = []
        self.open: list[str] = []
        self.cells: list[str] = []
        self.data: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, Optional[str]]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in ("meta", "br"):
            self.open.append(tag)
        if tag == "td":
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, "every element is closed in its order"

    def handle_data(self, data: str) -> None:
        self.data.append(data)
        if "td" in self.open:
            self.cells[-1] += data
