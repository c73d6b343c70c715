# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From a command line to an answer. The line comes from the network: it is parsed strictly and never sees a shell.

The launcher that the role node_agent installs is::

    #!/usr/bin/python3 -IS
    import sys
    sys.path.insert(0, "/usr/local/lib/job-recovery")
    from job_recovery_node.cli import main
    sys.exit(main())
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import sys
from typing import Callable, NamedTuple

from . import answer, config

_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
_STATE = "/run/job-recovery-node"
_MAX_LINE = 65536
_LINE = re.compile(r"[A-Za-z0-9 ._+-]*\Z")
_JOB = r"[1-9][0-9]{0,9}"
_OWNER = r"[0-9]{1,10}\.[0-9]{1,10}"  # job and uid
_PROCESS = r"[0-9]{1,9}\.[0-9]{1,18}"  # pid and start, as `orphans` told them
_HEX_PATH = r"(?:[0-9a-f]{2}){1,4096}"
_UID = r"(?:0|[1-9][0-9]{0,9})"
_BOOT_ID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_MACHINE_ID = r"[0-9a-f]{32}"
_DEVICE = r"[0-9a-f]{4,8}-[0-9a-f]{2}-[0-9a-f]{2}"  # a PCI address without colons
_RESET = r"[0-9]{1,18}-[0-9]{1,18}"
_MAX_LIFE = 900  # seconds; a helper that hangs in the kernel's arms does not stay for ever


class Request(NamedTuple):
    """One parsed command line: the verb, its operands, and its options (each a list of values, flags an empty text)."""

    verb: str
    operands: tuple
    options: dict

    def last(self, option: str, default: str = "") -> str:
        """The last value given for an option."""
        values = self.options.get(option)
        return values[-1] if values else default


class Here(NamedTuple):
    """Where the helper looks: the node's configuration, its /proc, and what it keeps itself until the next boot."""

    config_path: str
    proc: str
    state: str = _STATE

    @property
    def configuration(self) -> config.Config:
        """The node's configuration, read anew."""
        return config.load(self.config_path)


class Verb(NamedTuple):
    """One thing that the helper can do.

    Attributes:
        run: request and place in, the answer's fields out; raises `answer.Refusal`. Imports what it needs itself.
        operand: the pattern of an operand, empty for none; at least one is then needed.
        options: by option name the pattern of its value, None for a flag.
        required: options that must be given.
    """

    run: Callable
    operand: str = ""
    options: dict = {}
    required: tuple = ()


def parse(words: list) -> Request:
    """Check the words of a command line against the table of verbs.

    Raises:
        answer.Refusal: `bad_input`, naming the word.
    """
    if not words:
        raise answer.Refusal("bad_input", "no verb; one of %s" % ", ".join(sorted(VERBS)))
    verb = VERBS.get(words[0])
    if verb is None:
        raise answer.Refusal("bad_input", "unknown verb %r" % words[0][:100])
    operands: list = []
    options: dict = {}
    rest = iter(words[1:])
    for word in rest:
        if word.startswith("-"):
            _take_option(verb, word, rest, options)
        elif verb.operand and re.fullmatch(verb.operand, word):
            operands.append(word)
        else:
            raise answer.Refusal("bad_input", "%s: unexpected %r" % (words[0], word[:100]))
    if verb.operand and not operands:
        raise answer.Refusal("bad_input", "%s: nothing named" % words[0])
    for option in verb.required:
        if option not in options:
            raise answer.Refusal("bad_input", "%s: %s is missing" % (words[0], option))
    return Request(words[0], tuple(operands), options)


def _take_option(verb: Verb, word: str, rest, options: dict) -> None:
    allowed = {**_CONDITIONS, **verb.options}
    if word not in allowed:
        raise answer.Refusal("bad_input", "unknown option %r" % word[:100])
    value = ""
    if allowed[word] is not None:
        value = next(rest, "")
        if not re.fullmatch(allowed[word], value):
            raise answer.Refusal("bad_input", "%s: %r is no value" % (word, value[:100]))
    options.setdefault(word, []).append(value)


def split(line: str) -> list:
    """The words of a command line that came over SSH.

    Raises:
        answer.Refusal: `bad_input` for anything but plain words.
    """
    if len(line) > _MAX_LINE or not _LINE.match(line):
        raise answer.Refusal("bad_input", "the command line has other characters than plain words have, or too many")
    return shlex.split(line)


def main(
    config_path: str = config.DEFAULT_PATH, proc: str = "/proc", path: str = _PATH, state: str = _STATE
) -> int:
    """Answer the request of SSH_ORIGINAL_COMMAND, else of the command line.

    Returns:
        0 when the verb was done, 1 when it was refused or failed; the answer stands on stdout either way.
    """
    line = os.environ.get("SSH_ORIGINAL_COMMAND")
    os.environ.clear()
    os.environ.update(PATH=path, LC_ALL="C")
    signal.alarm(_MAX_LIFE)
    name = ""
    try:
        words = sys.argv[1:] if line is None else split(line)
        name = words[0] if words and words[0] in VERBS else ""
        request = parse(words)
        here = Here(config_path, proc, state)
        _check_conditions(request, here)
        answer.write(request.verb, VERBS[request.verb].run(request, here))
    except answer.Refusal as refusal:
        answer.write_refusal(name, refusal)
        return 1
    except Exception as exc:  # noqa: BLE001 (the answer is the only thing that anybody sees of a defect)
        answer.write_refusal(name, answer.Refusal("failed", "%s: %s" % (type(exc).__name__, exc)))
        return 1
    return 0


def _check_conditions(request: Request, here: Here) -> None:
    """Compare this node with the one that is meant, before anything is done.

    Raises:
        answer.Refusal: `conflict`, when it is another machine or another boot. For `reboot` another boot is an answer.
    """
    from . import machine

    wanted = request.last("--if-machine-id")
    if wanted and machine.machine_id() != wanted:
        raise answer.Refusal("conflict", "this is another machine: its machine ID is %s" % machine.machine_id())
    wanted = request.last("--if-boot-id")
    if wanted and request.verb != "reboot" and machine.boot_id(here.proc) != wanted:
        raise answer.Refusal("conflict", "this is another boot: its boot ID is %s" % machine.boot_id(here.proc))


def _probe(_request: Request, here: Here) -> dict:
    from . import machine

    return machine.probe(here)


def _restart(request: Request, _here: Here) -> dict:
    from . import machine

    return machine.restart(list(dict.fromkeys(request.operands)), "--force" in request.options)


def _reboot(request: Request, here: Here) -> dict:
    from . import machine

    return machine.reboot(here, request.last("--if-boot-id"))


def _spool_look(request: Request, here: Here) -> dict:
    from . import spool_verbs

    return spool_verbs.look(here, _jobs(request))


def _spool_clean(request: Request, here: Here) -> dict:
    from . import spool_verbs

    return spool_verbs.clean(here, _jobs(request))


def _orphans(request: Request, here: Here) -> dict:
    from . import processes

    return processes.look(here.proc, _operand_jobs(request), _owners(request))


def _end_orphans(request: Request, here: Here) -> dict:
    from . import processes

    named = [tuple(int(part) for part in text.split(".")) for text in request.options["--process"]]
    return processes.end(here.proc, _operand_jobs(request), named, _owners(request))


def _evidence(request: Request, here: Here) -> dict:
    from . import evidence

    return evidence.collect(here, int(request.last("--kib")))


def _job_log(request: Request, _here: Here) -> dict:
    from . import job_log

    return job_log.read(request.options["--path"][:2], int(request.last("--uid")), int(request.last("--kib")))


def _health(_request: Request, here: Here) -> dict:
    from . import health

    return health.check(here.configuration)


def _test_step(_request: Request, here: Here) -> dict:
    from . import machine, mpi_step

    return mpi_step.run_step(here.configuration, machine.boot_id(here.proc), here.proc)


def _kernel_look(request: Request, here: Here) -> dict:
    from . import kernel

    return kernel.look(here, request.last("--code"))


def _gpu_look(request: Request, here: Here) -> dict:
    from . import gpu

    return gpu.look(here, _devices(request))


def _gpu_stop(request: Request, here: Here) -> dict:
    from . import gpu_reset

    return gpu_reset.stop(here, request.last("--name"))


def _gpu_reset(request: Request, here: Here) -> dict:
    from . import gpu_reset

    return gpu_reset.reset(here, request.last("--name"), _devices(request))


def _gpu_start(request: Request, here: Here) -> dict:
    from . import gpu_reset

    return gpu_reset.start(here, request.last("--name"))


def _devices(request: Request) -> list:
    """The PCI addresses of the GPUs that are named, each once."""
    from . import gpu

    return list(dict.fromkeys(gpu.of_word(word) for word in request.options.get("--device", [])))


def _owners(request: Request) -> dict:
    """By job the uid of its user."""
    return dict(tuple(int(part) for part in text.split(".")) for text in request.options.get("--owner", []))


def _jobs(request: Request) -> list:
    return [int(job) for job in request.options.get("--job", [])]


def _operand_jobs(request: Request) -> list:
    return [int(job) for job in request.operands]


_CONDITIONS = {"--if-boot-id": _BOOT_ID, "--if-machine-id": _MACHINE_ID}  # of every verb

VERBS = {
    "probe": Verb(_probe),
    "restart": Verb(_restart, operand=r"(?:slurmd|kubelet)\.service", options={"--force": None}),
    "reboot": Verb(_reboot, required=("--if-boot-id",)),
    "spool-look": Verb(_spool_look, options={"--job": _JOB}),
    "spool-clean": Verb(_spool_clean, options={"--job": _JOB}),
    "orphans": Verb(_orphans, operand=_JOB, options={"--owner": _OWNER}),
    "end-orphans": Verb(
        _end_orphans, operand=_JOB, options={"--process": _PROCESS, "--owner": _OWNER}, required=("--process",)
    ),
    "evidence": Verb(_evidence, options={"--kib": r"[1-9][0-9]{0,3}"}, required=("--kib",)),
    "job-log": Verb(
        _job_log,
        options={"--path": _HEX_PATH, "--uid": _UID, "--kib": r"[1-9][0-9]{0,3}"},
        required=("--path", "--uid", "--kib"),
    ),
    "health": Verb(_health),
    "test-step": Verb(_test_step),
    "kernel-look": Verb(_kernel_look, options={"--code": r"[a-z][a-z0-9_]{0,31}"}, required=("--code",)),
    "gpu-look": Verb(_gpu_look, options={"--device": _DEVICE}),
    "gpu-stop": Verb(_gpu_stop, options={"--name": _RESET}, required=("--name",)),
    "gpu-reset": Verb(_gpu_reset, options={"--name": _RESET, "--device": _DEVICE}, required=("--name",)),
    "gpu-start": Verb(_gpu_start, options={"--name": _RESET}, required=("--name",)),
}
