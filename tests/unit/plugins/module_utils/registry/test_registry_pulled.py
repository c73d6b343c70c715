# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What pre-flight asks of registries for the releases of a site."""

from __future__ import annotations

from typing import Any, Optional

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.registry.pulled import below, wanted

COMMON = {"username": "common", "password": "c", "password_file": "", "docker_config": "", "ca_file": "/ca"}
SITE = {"address": "oci://nvcr.io/nvidia", "username": "$oauthtoken", "password": "t"}
NOWHERE = {"address": "", "username": "$oauthtoken", "password": ""}
OURS = {"username": "common", "password": "c", "ca_file": "/ca"}
SITES = {"username": "$oauthtoken", "password": "t", "ca_file": "/ca"}


def asked(
    *releases: dict[str, Any], common: Optional[dict[str, str]] = None, site: Optional[dict[str, str]] = None,
    **given: Any,
) -> tuple[Any, Any, Any]:
    mine = {"registries": [], "repositories": [], "charts": [], **given}
    told = wanted(mine, releases, {**COMMON, **(common or {})}, site or NOWHERE)
    return told["registries"], told["repositories"], told["charts"]


def test_nothing_and_what_is_given() -> None:
    assert asked() == ([], [], [])
    given = {"registries": [{"registry": "r"}], "repositories": [{"url": "https://u"}], "charts": [{"chart": "oci://r/c"}]}
    assert asked(**given) == tuple(given.values())


@pytest.mark.parametrize(
    ("release", "registries", "repositories", "charts"),
    [
        (
            {"chart": "oci://r:5000/x/a", "version": "1.2.3", "digest": "sha256:" + "0" * 64},
            [{"registry": "r:5000", **OURS}], [], [{"chart": "oci://r:5000/x/a", "version": "1.2.3"}],
        ),
        ({"chart": "oci://r/a", "version": "^1.2"}, [{"registry": "r", **OURS}], [],
         [{"chart": "oci://r/a", "version": ""}]),
        (
            {"chart": "a", "repository": "https://u/x", "digest": "sha256:1"},
            [], [{"url": "https://u/x", **OURS}],
            [{"chart": "a", "version": "", "repository": "https://u/x", "digest": "sha256:1"}],
        ),
        (
            {"chart": "oci://r/a", "username": "own", "password": "o", "ca_file": "/own"},
            [{"registry": "r", "username": "own", "password": "o", "ca_file": "/own"}], [],
            [{"chart": "oci://r/a", "version": ""}],
        ),
        ({"chart": "oci://r/a", "username": "own", "password_file": "/f"}, [], [], []),
        ({"chart": "oci://r/a", "docker_config": "/f"}, [], [], []),
        ({"chart": "oci://r/a", "state": "absent"}, [], [], []),
        ({"chart": "./a.tgz"}, [], [], []),
        ({"chart": "/srv/charts/a"}, [], [], []),
    ],
)
def test_a_release(release: dict[str, Any], registries: Any, repositories: Any, charts: Any) -> None:
    assert asked(release) == (registries, repositories, charts)


def test_the_sites_repository_is_asked_with_its_account_and_nothing_else_is() -> None:
    assert asked(site=SITE) == ([{"registry": "nvcr.io", **SITES}], [], [])
    registries, _repositories, charts = asked({"chart": "oci://nvcr.io/nvidia/a"}, {"chart": "oci://r/b"}, site=SITE)
    assert registries == [{"registry": "nvcr.io", **SITES}, {"registry": "r", **OURS}]
    assert [one["chart"] for one in charts] == ["oci://nvcr.io/nvidia/a", "oci://r/b"]
    https = {**SITE, "address": "https://u/x/"}
    assert asked({"chart": "a", "repository": "https://u/x"}, site=https)[1] == [{"url": "https://u/x/", **SITES}]
    without = {**SITE, "password": ""}
    assert asked(site=without)[0] == [{"registry": "nvcr.io", "username": "", "password": "", "ca_file": "/ca"}]


def test_what_is_given_goes_before() -> None:
    given = [{"registry": "nvcr.io/nvidia", "password": "mine"}]
    assert asked({"chart": "oci://nvcr.io/nvidia/a"}, site=SITE, registries=given)[0] == given


def test_an_account_in_a_file_is_helms_to_read() -> None:
    assert asked({"chart": "oci://r/a"}, common={"password_file": "/f"}) == ([], [], [])
    assert asked({"chart": "oci://nvcr.io/nvidia/a"}, common={"password_file": "/f"}, site=SITE)[2] == [
        {"chart": "oci://nvcr.io/nvidia/a", "version": ""}
    ]


@pytest.mark.parametrize(("address", "place", "answer"), [
    ("oci://nvcr.io/nvidia/a", "oci://nvcr.io/nvidia", True),
    ("oci://nvcr.io/nvidia", "oci://nvcr.io/nvidia/", True),
    ("oci://nvcr.io/nvidia-other/a", "oci://nvcr.io/nvidia", False),
    ("oci://nvcr.io.example.org/nvidia/a", "oci://nvcr.io/nvidia", False),
    ("oci://nvcr.io/nvidia/a", "", False),
])
def test_below(address: str, place: str, answer: bool) -> None:
    assert below(address, place) is answer
