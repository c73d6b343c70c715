# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every node's power by the driver that its power address names: `site:NAME`, or the URL of a Redfish system."""

from __future__ import annotations

from typing import Any, Callable, Optional, Sequence, Union

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import RecoveryError
from ansible_collections.mission_control.job_recovery.plugins.module_utils.power import redfish
from ansible_collections.mission_control.job_recovery.plugins.module_utils.power.http import split_url
from ansible_collections.mission_control.job_recovery.plugins.module_utils.power.redfish import PowerState
from ansible_collections.mission_control.job_recovery.plugins.module_utils.power.site_command import (
    SitePower,
    is_site_address,
    split_site_address,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import PowerSettings

Driver = Union[redfish.Power, SitePower]


def check_address(url: str) -> None:
    """Refuse what is no power address.

    Raises:
        BadInput: saying what one looks like.
    """
    if is_site_address(url):
        split_site_address(url)
    else:
        split_url(url)


class Power:
    """The methods of the drivers, each handed to the driver of the address."""

    def __init__(self, settings: PowerSettings) -> None:
        self._redfish = redfish.Power(settings)
        self._site = SitePower(settings)

    def read(self, url: str, deadline: Optional[float] = None) -> PowerState:
        """The power and the UUID of the machine; see the drivers."""
        return self._of(url).read(url, deadline)

    def read_many(
        self, urls: Sequence[str], deadline: Optional[float] = None
    ) -> dict[str, Union[PowerState, RecoveryError]]:
        """`read` of many: by address the state, or the error."""
        by_site = [url for url in urls if is_site_address(url)]
        by_redfish = [url for url in urls if not is_site_address(url)]
        return {**self._redfish.read_many(by_redfish, deadline), **self._site.read_many(by_site, deadline)}

    def request_level(
        self,
        url: str,
        level: str,
        smbios_uuid: str,
        seconds: float,
        before_write: Optional[Callable[[], Any]] = None,
    ) -> PowerState:
        """Ask for `On` or `Off`; see the drivers."""
        return self._of(url).request_level(url, level, smbios_uuid, seconds, before_write)

    def await_level(self, url: str, levels: Sequence[str], smbios_uuid: str, seconds: float) -> PowerState:
        """Look until one of the levels is there or the time is over; see the drivers."""
        return self._of(url).await_level(url, levels, smbios_uuid, seconds)

    def _of(self, url: str) -> Driver:
        return self._site if is_site_address(url) else self._redfish
