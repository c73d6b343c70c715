# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.client import KubernetesClient
from ansible_collections.mission_control.job_recovery.tests.unit.plugins.module_utils.kubernetes.api_server import (
    ApiServer,
)


@pytest.fixture
def api():
    server = ApiServer()
    yield server
    server.close()


@pytest.fixture
def kubeconfig(api, tmp_path):
    return api.kubeconfig(tmp_path)


@pytest.fixture
def client(kubeconfig):
    made = KubernetesClient(kubeconfig, timeout=5.0)
    yield made
    made.close()
