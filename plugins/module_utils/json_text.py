# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""JSON that somebody else wrote: a user, a node, a BMC, a registry, a server."""

from __future__ import annotations

import json
from typing import Any, Union


def loads(text: Union[str, bytes]) -> Any:
    """What the text holds.

    Raises:
        ValueError: it is no JSON, or nested more deeply than can be read. Nothing else is ever raised: a bracket that
            is repeated a hundred thousand times is a RecursionError to the standard library.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
