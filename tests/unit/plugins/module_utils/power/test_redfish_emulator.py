# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Power against a real Redfish emulator (sushy-tools, fake driver)."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Iterator

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import Absent, Conflict
from ansible_collections.mission_control.job_recovery.plugins.module_utils.power.redfish import OFF, ON, Power
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import PowerSettings

NODE1 = "c7a5fdbd-cdaf-9455-926a-d65c16db1809"
NODE2 = "c7a5fdbd-cdaf-9455-926a-d65c16db1810"
EMULATOR = shutil.which("sushy-emulator") or str(Path(sys.executable).parent / "sushy-emulator")

pytestmark = pytest.mark.skipif(not os.path.exists(EMULATOR), reason="sushy-tools is not installed")


@pytest.fixture(name="emulator", scope="module")
def _emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("emulator")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    systems = [
        {"uuid": uuid, "name": "node%d" % (index + 1), "power_state": "Off", "nics": []}
        for index, uuid in enumerate((NODE1, NODE2))
    ]
    config = folder / "emulator.conf"
    config.write_text(
        "SUSHY_EMULATOR_FAKE_DRIVER = True\nSUSHY_EMULATOR_FAKE_SYSTEMS = %r\nSUSHY_EMULATOR_STATE_DIR = %r\n"
        % (systems, str(folder)),
        encoding="utf-8",
    )
    argv = [EMULATOR, "--config", str(config), "-i", "127.0.0.1", "-p", str(port)]
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(argv, stdout=log, stderr=log, env={**os.environ, "TMPDIR": str(folder)})
    try:
        for _attempt in range(200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield "http://127.0.0.1:%d/redfish/v1/Systems/" % port
    finally:
        process.terminate()
        process.wait(10)


@pytest.fixture(name="power")
def _power(tmp_path: Path) -> Power:
    credentials = tmp_path / "credentials"
    credentials.write_text("admin:secret\n", encoding="utf-8")
    return Power(PowerSettings(credentials_file=str(credentials)))


def test_on_and_off_are_levels(emulator: str, power: Power) -> None:
    url = emulator + NODE1
    assert power.read(url).uuid == NODE1
    for level in (ON, ON, OFF, OFF, ON):
        power.request_level(url, level, NODE1.upper(), 10)
        assert power.await_level(url, (level,), NODE1, 20).state == level
    assert power.read(emulator + NODE2).state == OFF


def test_another_machines_bmc_is_not_touched(emulator: str, power: Power) -> None:
    before = power.read(emulator + NODE2).state
    with pytest.raises(Conflict, match="tells the UUID"):
        power.request_level(emulator + NODE2, ON if before == OFF else OFF, NODE1, 10)
    assert power.read(emulator + NODE2).state == before


def test_an_unknown_system_is_absent(emulator: str, power: Power) -> None:
    answers = power.read_many([emulator + NODE1, emulator + "00000000-0000-0000-0000-00000000beef"])
    first, second = answers.values()
    assert first.uuid == NODE1
    assert isinstance(second, Absent)
