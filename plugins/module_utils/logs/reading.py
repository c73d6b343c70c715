# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From the last bytes of a file to text whose lines can be read. Pure; the bytes are read by `node.user_file`."""

from __future__ import annotations

import codecs

# The last part of a log that is read.
MAX_BYTES = 2 * 1024 * 1024

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


def text_of(content: bytes, size: int = 0) -> str:
    """The text of the last part of a file, in any encoding; of one that is no text, what is readable in it.

    Args:
        content: the last bytes.
        size: of the whole file; where it is larger than the content, the first line is not whole and left out.
    """
    if size > len(content):
        content = content[content.find(b"\n") + 1 :]
    for mark, encoding in _MARKS:
        if content.startswith(mark):
            return content[len(mark) :].decode(encoding, "replace")
    encoding = _wide(content[:4096])
    if encoding:
        return content.decode(encoding, "replace")
    return content.replace(b"\0", b"").decode("utf-8", "replace")


def _wide(sample: bytes) -> str:
    """UTF-16 without its mark, as every second byte of it is zero; the empty text for anything else."""
    if len(sample) < 8:
        return ""
    for first, encoding in ((1, "utf-16-le"), (0, "utf-16-be")):
        zeros = sample[first::2].count(0)
        others = sample[1 - first :: 2].count(0)
        if zeros * 10 > len(sample) * 4 and others * 10 < len(sample):
            return encoding
    return ""
