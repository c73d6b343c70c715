# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command `job-recovery run`: a remediation by hand, as a person types it.

    job-recovery run reboot_node --nodes 'node[1-2]' --reason 'new firmware' [--wait] [--override cooldown]

It becomes ansible-playbook, with what was typed as extra variables. Ansible takes extra variables for templates and
splits `NAME=VALUE` at blanks; a reason may be pasted from a job's name, so every text is handed over as one that is
never a template (`!unsafe`).
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import Optional, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.catalogue import REMEDIATIONS

_COLLECTION = "mission_control.job_recovery"
_LISTS = ("nodes", "jobs", "override")


def command(argv: Sequence[str]) -> list[str]:
    """The command line of ansible-playbook; what is not known here is passed on."""
    options, others = _parser().parse_known_args(argv)
    variables = ["%s: [%s]" % (name, _texts(getattr(options, name))) for name in _LISTS if getattr(options, name)]
    if options.reason is not None:
        variables.append("reason: %s" % _texts([options.reason]))
    if options.wait:
        variables.append("wait: true")
    extra = ["--extra-vars", "{%s}" % ", ".join(variables)] if variables else []
    return ["ansible-playbook", "%s.%s" % (_COLLECTION, options.remediation), *extra, *others]


def _texts(texts: Sequence[str]) -> str:
    """Texts as YAML that is plain ASCII, whatever is in them."""
    return ", ".join('!unsafe "%s"' % "".join(map(_quoted, text)) for text in texts)


def _quoted(character: str) -> str:
    if " " <= character <= "~" and character not in '"\\':
        return character
    if 0xD800 <= ord(character) <= 0xDFFF:  # a byte of the command line that was no UTF-8
        return "?"
    return "\\U%08x" % ord(character)


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Become ansible-playbook."""
    made = command(sys.argv[1:] if argv is None else argv)
    os.execvp(made[0], made)  # noqa: S606 - the point is that no shell sees what was typed


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="job-recovery run",
        description="A remediation by hand, through the same gates. Other options are ansible-playbook's.",
        allow_abbrev=False,
    )
    parser.add_argument("remediation", choices=REMEDIATIONS)
    parser.add_argument("--nodes", action="append", help="a host list such as node[1-4,7]")
    parser.add_argument("--jobs", action="append", help="a Slurm job's id, or namespace/name of a Kubernetes Job")
    parser.add_argument("--reason", help="why; it is needed, and kept in the ledger with who asked")
    parser.add_argument("--override", action="append", help="a gate that shall not stop it")
    parser.add_argument("--wait", action="store_true", help="show every step until all is over")
    return parser


if __name__ == "__main__":
    main()
