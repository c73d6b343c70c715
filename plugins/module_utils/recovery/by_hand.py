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

_COLLECTION = "mission_control.job_recovery"
_LISTS = ("nodes", "jobs", "override")
#: By remediation that a person may ask for, what it does and what it needs.
_BY_HAND = {
    "restart_daemon": ("nodes", "start slurmd or the kubelet where it is dead"),
    "reboot_node": ("nodes", "drain, wait for the jobs, reboot (by its BMC if it is silent), clean, verify, give back"),
    "reset_gpu": ("nodes", "drain, wait for the jobs, reset the GPUs (reboot if that fails), verify, give back"),
    "return_node": ("nodes", "clean and verify a node that is back, and give it back"),
    "clean_spool": ("nodes", "drain, wait for the jobs, clean the slurmd spool, give back"),
    "quarantine_node": ("nodes", "drain and cordon, and leave it so for a person"),
    "requeue_job": ("jobs", "end what is left of a Slurm job, clean its nodes' spool, requeue it"),
    "rerun_kubernetes_job": ("jobs", "create a failed Kubernetes Job again under a new name"),
}


def command(argv: Sequence[str]) -> list[str]:
    """The command line of ansible-playbook; what is not known here is passed on."""
    parser = _parser()
    options, others = parser.parse_known_args(argv)
    if not any(word.startswith(("-e", "--extra-vars")) for word in others):  # else it may stand there
        _require(parser, options)
    variables = ["%s: [%s]" % (name, _texts(getattr(options, name))) for name in _LISTS if getattr(options, name)]
    if options.reason is not None:
        variables.append("reason: %s" % _texts([options.reason]))
    if options.wait:
        variables.append("wait: true")
    extra = ["--extra-vars", "{%s}" % ", ".join(variables)] if variables else []
    return ["ansible-playbook", "%s.%s" % (_COLLECTION, options.remediation), *extra, *others]


def _require(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    kind = _BY_HAND[options.remediation][0]
    if not getattr(options, kind):
        parser.error("%s is about %s: give --%s" % (options.remediation, kind, kind))
    if not (options.reason or "").strip():
        parser.error("a reason is needed: --reason 'why'; it is kept in the ledger with who asked")


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
        epilog="remediations:\n" + "".join("  %-21s %s\n" % (name, what) for name, (_kind, what) in _BY_HAND.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("remediation", choices=_BY_HAND, metavar="REMEDIATION", help="see below")
    parser.add_argument("--nodes", action="append", help="a host list such as node[1-4,7]")
    parser.add_argument("--jobs", action="append", help="a Slurm job's id, or namespace/name of a Kubernetes Job")
    parser.add_argument("--reason", help="why; it is needed, and kept in the ledger with who asked")
    parser.add_argument("--override", action="append", help="a gate that shall not stop it")
    parser.add_argument("--wait", action="store_true", help="show every step until all is over")
    return parser


if __name__ == "__main__":
    main()
