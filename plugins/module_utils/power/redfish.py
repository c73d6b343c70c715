# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Power of nodes by their BMCs' Redfish (DMTF DSP0266): read, and set as a level, Off or On.

A level, never a reset or a cycle: to ask twice for Off harms nobody, and only Off proves that a node does nothing any
more. A BMC is believed only after it has told the UUID of the machine that is meant.
"""

from __future__ import annotations

import base64
import ssl
import time
from dataclasses import dataclass
from typing import Any, Callable, Mapping, Optional, Sequence, Union

from ansible_collections.mission_control.job_recovery.plugins.module_utils import json_text
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import (
    Absent,
    BadInput,
    Conflict,
    Forbidden,
    RecoveryError,
    TimedOut,
    Unreachable,
    Unreadable,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.parallel import read_each
from ansible_collections.mission_control.job_recovery.plugins.module_utils.power import looking
from ansible_collections.mission_control.job_recovery.plugins.module_utils.power.http import (
    Reply,
    Server,
    ask,
    split_url,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.power.identity import same_machine
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import PowerSettings

ON = "On"
OFF = "Off"
POWERING_ON = "PoweringOn"
POWERING_OFF = "PoweringOff"
UNKNOWN = "unknown"

_STATES = (ON, OFF, POWERING_ON, POWERING_OFF)
_RESET_TYPES = {OFF: "ForceOff", ON: "On"}
_POLL = 0.25  # seconds between two looks while a level is awaited; doubled up to _POLL_MAX
_POLL_MAX = 2.0
_WORKERS = 32


@dataclass(frozen=True)
class PowerState:
    """What a BMC says of its system.

    Attributes:
        state: `On`, `Off`, `PoweringOn`, `PoweringOff`, or `unknown` for anything else (Paused, null).
        uuid: the system's UUID as told, empty where the BMC tells none.
        reset_path: where a reset is asked for, empty where the BMC offers none.
        reset_types: the values it allows there; empty when it does not say.
        etag: the version of the answer, for BMCs that want it back.
    """

    state: str
    uuid: str = ""
    reset_path: str = ""
    reset_types: tuple[str, ...] = ()
    etag: str = ""


class Power:
    """The BMCs of a site: one account, one certificate authority.

    Args:
        settings: where credentials and the authority's certificate are, and the time-outs. Files are read at use.
    """

    def __init__(self, settings: PowerSettings) -> None:
        self._settings = settings
        self._authorization: Optional[str] = None
        self._tls: Optional[ssl.SSLContext] = None

    def read(self, url: str, deadline: Optional[float] = None) -> PowerState:
        """The system's power and UUID; `deadline` in seconds, by default and at most the settings' time-out.

        Raises:
            RecoveryError: `Unreachable`, `TimedOut`, `Forbidden`, `Absent` (no such system), `Unreadable`.
        """
        return read_system(url, self._ask(url, "GET", deadline))

    def read_many(
        self, urls: Sequence[str], deadline: Optional[float] = None
    ) -> dict[str, Union[PowerState, RecoveryError]]:
        """`read` of many at once: by URL the state, or the error."""
        return read_each(urls, lambda url: self.read(url, deadline), _WORKERS)

    def request_level(
        self,
        url: str,
        level: str,
        smbios_uuid: str,
        seconds: float,
        before_write: Optional[Callable[[], Any]] = None,
    ) -> PowerState:
        """Ask the BMC for `level` (`On` or `Off`), unless it is there already. Comes back before it is reached.

        Args:
            smbios_uuid: the machine that is meant; compared with what the BMC tells right before it is asked.
            seconds: for reading and asking together.
            before_write: called right before the BMC is asked for a change; raises when that may not be.

        Returns:
            the state that was read before.

        Raises:
            Conflict: the BMC is another machine's, or tells no UUID; or it refuses the change in its present state.
            RecoveryError: as `read`. After `TimedOut` and `Unreachable` the change may have been taken.
        """
        until = time.monotonic() + seconds
        before = self.read(url, seconds)
        check_identity(url, before, smbios_uuid)
        if before.state == level:
            return before
        body = {"ResetType": _reset_type(url, before, level)}
        if before_write is not None:
            before_write()
        reply = self._reset(url, before.reset_path, body, "", until)
        if reply.status in (412, 428):  # this BMC wants to know which version of the system is meant
            reply = self._reset(url, before.reset_path, body, before.etag or "*", until)
        if reply.status in (400, 409) and self.read(url, _left(url, until)).state == level:
            return before  # "already off", said as an error
        _check_accepted(url, reply, level)
        return before

    def await_level(self, url: str, levels: Sequence[str], smbios_uuid: str, seconds: float) -> PowerState:
        """Look until the BMC says one of `levels`, or the time is over; the last state read is returned either way.

        A BMC that does not answer in between (many are busy while they switch) is asked again; if it did not answer
        once in the whole time, its error is raised.

        Raises:
            Conflict: the BMC is another machine's.
            RecoveryError: as `read`.
        """

        def look(left: float) -> PowerState:
            state = self.read(url, left)
            check_identity(url, state, smbios_uuid)
            return state

        return looking.await_level(look, levels, seconds, _POLL, _POLL_MAX)

    def _reset(self, url: str, path: str, body: Mapping[str, Any], etag: str, until: float) -> Reply:
        headers = {"If-Match": etag} if etag else {}
        return self._ask(url, "POST", _left(url, until), path=path, body=body, headers=headers)

    def _ask(
        self,
        url: str,
        method: str,
        deadline: Optional[float],
        path: str = "",
        body: Optional[Mapping[str, Any]] = None,
        headers: Optional[Mapping[str, str]] = None,
    ) -> Reply:
        server, own_path = split_url(url)
        seconds = min(self._settings.timeout, deadline) if deadline is not None else self._settings.timeout
        sent = {"Accept": "application/json", "OData-Version": "4.0", **(headers or {})}
        sent["Authorization"] = self._credentials()
        return ask(server, method, path or own_path, sent, body, seconds, self._context(server))

    def _credentials(self) -> str:
        if self._authorization is None:
            path = self._settings.credentials_file
            try:
                with open(path, encoding="utf-8") as handle:
                    line = handle.read().strip()
            except (OSError, UnicodeDecodeError) as exc:
                cause = exc.strerror if isinstance(exc, OSError) else "no UTF-8"
                raise Unreadable(
                    "BMC credentials %s: %s" % (path, cause), "run site.yml with the BMC account"
                ) from None
            if ":" not in line or "\n" in line:
                raise Unreadable("BMC credentials %s: not one line user:password" % path, "write it anew")
            self._authorization = "Basic " + base64.b64encode(line.encode("utf-8")).decode("ascii")
        return self._authorization

    def _context(self, server: Server) -> Optional[ssl.SSLContext]:
        if not server.tls:
            return None
        if self._tls is None:
            path = self._settings.ca_file
            try:
                self._tls = ssl.create_default_context(cafile=path or None)
            except (OSError, ssl.SSLError) as exc:
                raise Unreadable("BMC certificate authority %s: %s" % (path, exc), "give a PEM file") from exc
        return self._tls


def read_system(url: str, reply: Reply) -> PowerState:
    """The state in the answer to GET of a ComputerSystem (DSP0268).

    Raises:
        RecoveryError: `Forbidden`, `Absent`, `Unreachable` (the BMC is busy) or `Unreadable`.
    """
    if reply.status != 200:
        raise _status_error(url, reply)
    try:
        system = json_text.loads(reply.body)
    except ValueError:
        system = None
    if not isinstance(system, dict) or "PowerState" not in system:
        raise Unreadable("BMC %s: the answer is no ComputerSystem" % url, "correct the node's BMC address")
    state, told = system["PowerState"], system.get("UUID")
    path, types = _reset_action(url, system)
    return PowerState(
        state=state if state in _STATES else UNKNOWN,
        uuid=told if isinstance(told, str) else "",
        reset_path=path,
        reset_types=types,
        etag=reply.etag or (system["@odata.etag"] if isinstance(system.get("@odata.etag"), str) else ""),
    )


def proves_off(told: Any, smbios_uuid: str) -> bool:
    """Whether what a power device told shows that this very machine is off.

    Args:
        told: anything with `state` and `uuid`; None or the error where the device told nothing, which shows nothing.
    """
    if told is None or isinstance(told, RecoveryError):
        return False
    return told.state == OFF and same_machine(told.uuid, smbios_uuid)


def check_identity(url: str, state: PowerState, smbios_uuid: str) -> None:
    """Make sure that the BMC is the machine's.

    Raises:
        Conflict: it is not, or nobody can tell.
    """
    if not same_machine(state.uuid, smbios_uuid):
        told = state.uuid or "none"
        raise Conflict(
            "BMC %s tells the UUID %s, the node's is %s" % (url, told[:64], smbios_uuid or "not known"),
            "correct the node's BMC address",
        )


def _reset_action(url: str, system: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    actions = system.get("Actions")
    action = actions.get("#ComputerSystem.Reset") if isinstance(actions, dict) else None
    target = action.get("target") if isinstance(action, dict) else None
    if not isinstance(target, str):
        return "", ()
    if not target.startswith("/") or target.startswith("//") or not target.isprintable() or " " in target:
        raise Unreadable("BMC %s: the reset's target is no path of its own" % url)
    allowed = action.get("ResetType@Redfish.AllowableValues")
    return target, tuple(str(item) for item in allowed) if isinstance(allowed, list) else ()


def _reset_type(url: str, state: PowerState, level: str) -> str:
    wanted = _RESET_TYPES.get(level)
    if wanted is None:
        raise BadInput("power level %r is not one of %s" % (level, ", ".join(_RESET_TYPES)))
    if not state.reset_path or (state.reset_types and wanted not in state.reset_types):
        raise Absent("BMC %s offers no %s" % (url, wanted), "power the node by hand")
    return wanted


def _check_accepted(url: str, reply: Reply, level: str) -> None:
    if reply.status in (200, 201, 202, 204):
        return
    if reply.status in (400, 409, 412, 428):
        raise Conflict("BMC %s refuses %s in its present state (HTTP %d)" % (url, level, reply.status))
    raise _status_error(url, reply)


def _status_error(url: str, reply: Reply) -> RecoveryError:
    if reply.status in (401, 403):
        return Forbidden("BMC %s refuses our account (HTTP %d)" % (url, reply.status), "correct the BMC credentials")
    if reply.status == 404:
        return Absent("BMC %s: there is no such system" % url, "correct the node's BMC address")
    if reply.status in (408, 429) or reply.status >= 500:
        return Unreachable("BMC %s cannot answer now (HTTP %d)" % (url, reply.status))
    return Unreadable("BMC %s answers with HTTP %d" % (url, reply.status))


def _left(url: str, until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise TimedOut("BMC %s: no time is left to ask it" % url)
    return left
