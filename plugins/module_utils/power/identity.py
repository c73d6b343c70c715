# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a BMC is a node's: the SMBIOS UUID, compared as sixteen bytes and never as text."""

from __future__ import annotations

import uuid
from typing import Optional

# UUIDs that boards without one share: they identify nothing
_PLACEHOLDERS = frozenset(
    uuid.UUID(text)
    for text in (
        "00000000-0000-0000-0000-000000000000",
        "ffffffff-ffff-ffff-ffff-ffffffffffff",
        "03000200-0400-0500-0006-000700080009",
        "00020003-0004-0005-0006-000700080009",
        "12345678-1234-5678-90ab-cddeefaabbcc",
    )
)


def parse_uuid(text: object) -> Optional[uuid.UUID]:
    """The UUID in `text`, however it is written; None when it is none or identifies nothing."""
    if not isinstance(text, str):
        return None
    try:
        parsed = uuid.UUID(text.strip())
    except ValueError:
        return None
    return None if parsed in _PLACEHOLDERS else parsed


def same_machine(one: object, other: object) -> bool:
    """Whether two UUIDs name one machine; false when either is empty, unreadable or a placeholder.

    Before SMBIOS 2.6 the byte order of the first three fields was not settled (DMTF DSP0134, 7.2.1), so that some BMCs
    and the kernel print the same sixteen bytes differently: the swapped form is the same machine.
    """
    first, second = parse_uuid(one), parse_uuid(other)
    if first is None or second is None:
        return False
    return second.bytes in (first.bytes, first.bytes_le)
