# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Text that would run as code, or spoil a report, where it is trusted; each field's text leaves a mark of its own."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping

#: By form the text; MARK is the file that shows that it was run.
FORMS: Mapping[str, str] = {
    "expression": "{{ lookup('pipe', 'touch MARK') }}",
    "statement": "{% if lookup('pipe', 'touch MARK') %}{% endif %}{{ 7 * 7 }}",
    "dollar": "$(touch MARK)",
    "backtick": "`touch MARK`",
    "quotes": "'; touch MARK; '\"; touch MARK; \"",
    "pipe": "x | touch MARK & touch MARK",
    "newline": "x\ntouch MARK\nJobId=1 JobName=forged\n   JobState=FAILED Reason=None\nnode1 idle none\r\n",
    "terminal": "\x1b]0;MARK\x07\x1b[2J\x1b[31m\x9b31m\u202eMARK\u2066\x7f",
    "sql": "'); DROP TABLE incidents; -- \\",
    "html": "<script>fetch('MARK')</script><img src=x onerror=alert(1)>&amp;",
    "yaml": "x: !!python/object/apply:os.system ['touch MARK']\n- &a [*a]\n---\n",
    "format": "%s%n%(x)s{0.__class__}%%{}${HOME}",
}
_MARK = r".*/hostile-[a-z]+-[a-z]+"
#: Where marks are made; the private /tmp of a service is below it.
_FOLDER = "/tmp"
#: What no report may hand to a terminal; a newline ends a line of ours.
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]")


def text(field: str, form: str) -> str:
    """The text of one form for one field."""
    return FORMS[form].replace("MARK", f"/tmp/hostile-{field}-{form}")


def texts(field: str) -> str:
    """All forms at once, those first that would spoil the others' syntax last."""
    last = ("statement", "quotes", "newline", "yaml")
    return " ".join(text(field, form) for form in sorted(FORMS, key=lambda form: (form in last, form)))


def marks(cluster) -> list[str]:
    """Every mark, with the host on which it is; on this machine, too."""
    script = f"find {_FOLDER} -regextype posix-extended -regex '{_MARK}' 2>/dev/null; true"
    found = []
    for host in ("head", *cluster.instance.nodes):
        found += [f"{host}: {path}" for path in cluster.on(host, script, check=True).splitlines()]
    here = ["find", _FOLDER, "-maxdepth", "2", "-regextype", "posix-extended", "-regex", _MARK]
    local = subprocess.run(here, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60).stdout
    return found + [f"this machine: {path}" for path in local.splitlines()]


def control_characters(output: str) -> list[str]:
    """The control characters in an output, with what stands around each; a terminal's line ends are none."""
    output = output.replace("\r\n", "\n")
    return [ascii(output[max(0, found.start() - 20) : found.end() + 20]) for found in _CONTROL.finditer(output)]
