# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.registry.transport import Transport
from ansible_collections.mission_control.job_recovery.tests.unit.plugins.module_utils.registry.registry_server import (
    Account,
    RegistryServer,
)

USER = "$oauthtoken"
KEY = "nvapi-" + "k" * 64


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch):
    """The tests' servers are on this machine; a proxy of the environment is not asked for them."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def registry():
    server = RegistryServer()
    server.accounts = {USER: Account(KEY), "guest": Account("guest's password", ["public"])}
    server.put_image("lab/busybox", "1")
    server.put_image("public", "1")
    server.put_index("lab/multi", "1", "amd64", "arm64")
    server.put_chart("charts/access", "0.1.0")
    server.put_chart("charts/access", "0.2.0-rc.1_build5")
    yield server
    server.close()


@pytest.fixture
def transport():
    made = Transport()
    yield made
    made.close()
