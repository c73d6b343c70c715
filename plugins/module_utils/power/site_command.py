# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Power of nodes by the site's own commands (`cmsh`, `ipmitool`, `powerman`): the same interface as `redfish.Power`.

A node that is switched so has the power address `site:NAME`, NAME being what the site's tool calls it. The commands are
lists of arguments in which `{name}` stands for that name; no shell sees them, and each has a deadline.

Three rules make up for what such a tool cannot promise:

- **Its exit code is not believed.** Tools exit 0 for a node that they do not know. What counts is what `status` prints,
  by a pattern that contains the node's name; neither pattern, or both, is `unknown`, which is never Off.
- **A request proves nothing.** As with Redfish, Off is proved by being read afterwards.
- **Identity has a command of its own.** A tool that maps names to sockets or BMCs can be wrong about the wire, and no
  answer about a *name* tells. So `identify` must print the SMBIOS UUID as the *power device itself* tells it (the GUID
  of the BMC), it is asked right before every change, and without it power is never touched.
"""

from __future__ import annotations

import re
import time
from typing import Any, Callable, Optional, Sequence, Union

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import (
    BadInput,
    Conflict,
    RecoveryError,
    TimedOut,
    Unreachable,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.nodes.process import run_bounded
from ansible_collections.mission_control.job_recovery.plugins.module_utils.parallel import read_each
from ansible_collections.mission_control.job_recovery.plugins.module_utils.power import looking
from ansible_collections.mission_control.job_recovery.plugins.module_utils.power.identity import (
    parse_uuid,
    same_machine,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.power.redfish import (
    OFF,
    ON,
    UNKNOWN,
    PowerState,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import PowerSettings

SCHEME = "site:"
PLACEHOLDER = "{name}"

# It becomes part of an argument that may be a little language of its own (`cmsh -c`), so: no blank, no separator, no
# quote, and no leading dash, which would be an option.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}\Z")
_UUID = re.compile(r"(?<![0-9A-Fa-f-])[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}(?![0-9A-Fa-f-])")
_MAX_OUTPUT = 65536
_POLL = 0.5  # seconds between two looks while a level is awaited; doubled up to _POLL_MAX
_POLL_MAX = 4.0
_WORKERS = 8  # such tools ask one daemon, which does not get faster by being asked a hundredfold


def is_site_address(url: str) -> bool:
    """Whether a node's power address is one of this driver's."""
    return url.startswith(SCHEME)


def split_site_address(url: str) -> str:
    """The name in `site:NAME`.

    Raises:
        BadInput: it is no name that may stand in a command.
    """
    name = url[len(SCHEME) :] if is_site_address(url) else ""
    if not _NAME.match(name):
        raise BadInput(
            "the power address %s is not site:NAME with a plain name" % ascii(url)[:80],
            "use letters, digits, dot, dash and underscore",
        )
    return name


def read_state(output: str, name: str, on_pattern: str, off_pattern: str) -> str:
    """`On`, `Off` or `unknown`, as the output of `status` says of this node.

    Args:
        on_pattern, off_pattern: regular expressions for a whole line without the blanks around it; `{name}` stands for
            the node's name.

    Raises:
        BadInput: a pattern is no regular expression.
    """
    lines = [line.strip() for line in output.splitlines()]
    told = {
        level
        for level, pattern in ((ON, on_pattern), (OFF, off_pattern))
        if pattern and any(_compiled(pattern, name).fullmatch(line) for line in lines)
    }
    return told.pop() if len(told) == 1 else UNKNOWN


def read_uuid(output: str) -> str:
    """The one UUID that the output of `identify` tells; empty where it tells none, several, or one of nobody's."""
    found = {parse_uuid(text) for text in _UUID.findall(output)} - {None}
    return str(found.pop()) if len(found) == 1 else ""


class SitePower:
    """The site's power commands.

    Args:
        settings: the commands, the patterns, and the time-outs.
    """

    def __init__(self, settings: PowerSettings) -> None:
        self._commands = settings.commands
        self._timeout = settings.timeout

    def read(self, url: str, deadline: Optional[float] = None) -> PowerState:
        """The node's power and UUID; `deadline` in seconds for all of it, by default and at most the settings'.

        Raises:
            RecoveryError: `BadInput` (no commands), `Unreachable`, `TimedOut`, `Unreadable`.
        """
        name = split_site_address(url)
        until = time.monotonic() + (self._timeout if deadline is None else min(self._timeout, deadline))
        return self._read(name, until)

    def read_many(
        self, urls: Sequence[str], deadline: Optional[float] = None
    ) -> dict[str, Union[PowerState, RecoveryError]]:
        """`read` of many: by address the state, or the error."""
        return read_each(urls, lambda url: self.read(url, deadline), _WORKERS)

    def request_level(
        self,
        url: str,
        level: str,
        smbios_uuid: str,
        seconds: float,
        before_write: Optional[Callable[[], Any]] = None,
    ) -> PowerState:
        """Ask for `level` (`On` or `Off`), unless it is there already. Comes back before it is reached.

        Args, result and errors are those of `redfish.Power.request_level`. The exit code of the command is an error
        where it is not 0; where it is 0 nothing is proved.
        """
        name = split_site_address(url)
        commands = {
            ON: ("switch_on", self._commands.switch_on),
            OFF: ("switch_off", self._commands.switch_off),
        }
        command = commands.get(level)
        if command is None:
            raise BadInput("power level %r is not one of %s, %s" % (level, OFF, ON))
        until = time.monotonic() + seconds
        before = self._read(name, until)
        _check_identity(name, before.uuid, smbios_uuid)
        if before.state == level:
            return before
        if before_write is not None:
            before_write()
        self._run(*command, name, until)
        return before

    def await_level(self, url: str, levels: Sequence[str], smbios_uuid: str, seconds: float) -> PowerState:
        """Look until the tool says one of `levels`, or the time is over; as `redfish.Power.await_level`."""
        name = split_site_address(url)

        def look(left: float) -> PowerState:
            state = self._read(name, time.monotonic() + left)
            _check_identity(name, state.uuid, smbios_uuid)
            return state

        return looking.await_level(look, levels, seconds, _POLL, _POLL_MAX)

    def _read(self, name: str, until: float) -> PowerState:
        """Who it is first: the state that follows is then the later of the two, and of the machine just proved."""
        uuid = read_uuid(self._run("identify", self._commands.identify, name, until))
        output = self._run("status", self._commands.status, name, until)
        return PowerState(read_state(output, name, self._commands.on_pattern, self._commands.off_pattern), uuid)

    def _run(self, purpose: str, argv: Sequence[str], name: str, until: float) -> str:
        if not argv:
            raise BadInput(
                "site power command for %s: there is no command `%s`" % (name, purpose),
                "complete job_recovery_power_commands",
            )
        program = argv[0]
        left = until - time.monotonic()
        if left <= 0:
            raise TimedOut("site power command for %s: no time is left for `%s`" % (name, purpose))
        ended = run_bounded([part.replace(PLACEHOLDER, name) for part in argv], until, _MAX_OUTPUT)
        if ended.timed_out:
            raise TimedOut(
                "site power command `%s` (%s) for %s did not end within %.1f s" % (purpose, program, name, left)
            )
        if ended.rc != 0:
            said = " ".join((ended.stderr or ended.stdout).split())
            raise Unreachable(
                "site power command `%s` (%s) for %s ended with %d: %s"
                % (purpose, program, name, ended.rc, ascii(said)[:200]),
                "run it by hand as the user of the service",
            )
        return ended.stdout


def check_commands(settings: PowerSettings) -> None:
    """Refuse commands that could not work: one is missing or does not name the node, or a pattern is none.

    Raises:
        BadInput: naming what is wrong.
    """
    commands = settings.commands
    for purpose in ("status", "switch_on", "switch_off", "identify"):
        argv = getattr(commands, purpose)
        if not any(PLACEHOLDER in part for part in argv):
            raise BadInput(
                "power.commands.%s is missing, or has no argument with %s" % (purpose, PLACEHOLDER),
                "complete job_recovery_power_commands, or give the node the URL of its BMC",
            )
    for option, pattern in (("on_pattern", commands.on_pattern), ("off_pattern", commands.off_pattern)):
        if PLACEHOLDER not in pattern:
            raise BadInput(
                "power.commands.%s does not contain %s" % (option, PLACEHOLDER), "complete job_recovery_power_commands"
            )
        _compiled(pattern, "x")


def _compiled(pattern: str, name: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern.replace(PLACEHOLDER, re.escape(name)))
    except re.error as exc:
        raise BadInput("the pattern %s is no regular expression: %s" % (ascii(pattern)[:80], exc)) from None


def _check_identity(name: str, told: str, smbios_uuid: str) -> None:
    if not same_machine(told, smbios_uuid):
        raise Conflict(
            "site power command `identify` tells the UUID %s for %s, the node's is %s"
            % (told or "none", name, smbios_uuid or "not known"),
            "correct the node's power address, or the command",
        )
