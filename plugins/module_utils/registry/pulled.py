# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What `registry_check` is asked, so that it tells before what the role `charts` would find out when it installs. Pure.

Accounts that only a file on the machine holds (`password_file`, `docker_config`) are helm's to read: charts with such a
one are not asked for, and neither are archives and folders.
"""

from __future__ import annotations

import re
from typing import Any, Mapping, Optional, Sequence

_OCI = "oci://"
_VERSION = re.compile(r"v?\d+\.\d+\.\d+(?:[-+][0-9A-Za-z.+-]+)?\Z")
_FILES = ("password_file", "docker_config")

Account = Optional[dict[str, str]]  # None: a file has it


def wanted(given: Mapping[str, Any], releases: Sequence[Mapping[str, Any]], common: Mapping[str, str],
           site: Mapping[str, str]) -> dict[str, list[dict[str, Any]]]:
    """The options `registries`, `repositories` and `charts` of `registry_check`.

    Args:
        given: those that the site gives itself; they go before.
        releases: as the role `charts` takes them.
        common: its account for all that have none: `username`, `password`, `password_file`, `docker_config`, `ca_file`.
        site: the repository of the site (`address`, may be empty) and its account (`username`, `password`).
    """
    registries, repositories = list(given["registries"]), list(given["repositories"])
    charts = list(given["charts"])
    asked = [(site["address"], _site_account(site), common)] if site["address"] else []
    for release in releases:
        address = release.get("repository") or release.get("chart", "")
        account = _account(release, address, common, site)
        if release.get("state", "present") == "absent" or not _is_remote(address) or account is None:
            continue
        asked.append((address, account, release if "ca_file" in release else common))
        charts.append(_chart(release))
    for address, account, authority in asked:
        access = {**account, "ca_file": authority.get("ca_file") or ""}
        if address.startswith(_OCI):
            host = address[len(_OCI) :].partition("/")[0]
            if not any(one["registry"].partition("/")[0] == host for one in registries):
                registries.append({"registry": host, **access})
        elif not any(one["url"].rstrip("/") == address.rstrip("/") for one in repositories):
            repositories.append({"url": address, **access})
    return {"registries": registries, "repositories": repositories, "charts": charts}


def below(address: str, place: str) -> bool:
    """Whether an address is a place's, or below it."""
    return bool(place) and (address.rstrip("/") + "/").startswith(place.rstrip("/") + "/")


def _account(
    release: Mapping[str, Any], address: str, common: Mapping[str, str], site: Mapping[str, str]
) -> Account:
    """As the role chooses it: the release's own, the site's for what comes from there, else the common one."""
    if "username" in release or "docker_config" in release:
        return _of(release)
    if site["password"] and below(address, site["address"]):
        return _site_account(site)
    return _of(common)


def _of(account: Mapping[str, Any]) -> Account:
    if any(account.get(name) for name in _FILES):
        return None
    return {name: account.get(name) or "" for name in ("username", "password")}


def _site_account(site: Mapping[str, str]) -> dict[str, str]:
    return {"username": site["username"] if site["password"] else "", "password": site["password"]}


def _is_remote(address: str) -> bool:
    return address.startswith((_OCI, "https://", "http://"))


def _chart(release: Mapping[str, Any]) -> dict[str, Any]:
    """A range of versions is helm's to resolve. The digest of a release may be the archive's, which a registry does not
    tell, so it is compared only where the index of a repository does."""
    version = str(release.get("version") or "")
    chart = {"chart": release.get("chart", ""), "version": version if _VERSION.match(version) else ""}
    if release.get("repository"):
        chart.update(repository=release["repository"], digest=release.get("digest") or "")
    return chart
