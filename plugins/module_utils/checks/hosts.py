# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Many names in few words: a finding about a thousand nodes stays one line. Pure."""

from __future__ import annotations

from typing import Iterable, Mapping

from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.hostlist import compress

WIDTH = 160
_FEW = 5


def listed(names: Iterable[str], width: int = WIDTH) -> str:
    """Names as a host list (`node[1-4,7],solo`); beyond `width` characters the first few, and how many more."""
    unique = sorted(set(names))
    text = compress(unique)
    if len(text) <= width or len(unique) <= _FEW:
        return text
    return "%s and %d more" % (compress(unique[:_FEW]), len(unique) - _FEW)


def grouped(faults: Mapping[str, str], width: int = WIDTH) -> str:
    """What is wrong with which hosts, the most frequent first: `node[1-4]: no route; node7: refused`.

    Args:
        faults: by host what is wrong; an empty text is no fault.
    """
    hosts: dict[str, list[str]] = {}
    for host, fault in faults.items():
        if fault:
            hosts.setdefault(fault, []).append(host)
    order = sorted(hosts.items(), key=lambda item: (-len(item[1]), item[0]))
    parts = ["%s: %s" % (listed(names, width), fault) for fault, names in order[:_FEW]]
    rest = sum(len(names) for dummy, names in order[_FEW:])
    return "; ".join(parts) + ("; and %d more hosts with other faults" % rest if rest else "")
