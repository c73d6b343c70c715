# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import io
import tarfile

import pytest
from ansible_collections.mission_control.job_recovery.tests.unit.plugins.module_utils.helm.fake_helm import FakeHelm
from ansible_collections.mission_control.job_recovery.tests.unit.plugins.module_utils.kubernetes.conftest import (
    api,
    client,
    kubeconfig,
)

__all__ = ["api", "client", "helm", "kubeconfig", "packed"]


@pytest.fixture
def helm(tmp_path):
    return FakeHelm(tmp_path / "helm")


@pytest.fixture
def packed():
    """A chart's archive, as bytes."""

    def pack(name="front", version="1.0.0", text=None):
        data = (text if text is not None else "apiVersion: v2\nname: %s\nversion: %s\n" % (name, version)).encode()
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
            for path in ("%s/charts/inner/Chart.yaml" % name, "%s/Chart.yaml" % name):
                entry = tarfile.TarInfo(path)
                content = data if path.count("/") == 1 else b"name: inner\nversion: 9.9.9\n"
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
        return buffer.getvalue()

    return pack
