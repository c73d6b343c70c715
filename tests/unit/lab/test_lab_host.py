# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from pathlib import Path

import pytest
from joblab import host
from joblab.errors import LabError

DEB822 = """\
Types: deb deb-src
# kept for reference
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://mirror.example/debian-security
Suites: bookworm-security
Components: main
"""
DISABLED = "Enabled: no\nTypes: deb\nURIs: http://off.example/debian\nSuites: trixie\nComponents: main\n"
VENDOR = "deb [signed-by=/k.gpg] https://vendor.example/apt stable main\n"
ONE_LINE = """\
# deb http://off.example/debian trixie main
deb [arch=amd64 trusted=yes] http://mirror.example/debian/ trixie main contrib
deb http://mirror.example/debian-security trixie-security main
"""


HYBRID = """\
40 23 0:30 / /sys/fs/cgroup ro - tmpfs tmpfs ro
41 40 0:31 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
42 40 0:32 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
"""


@pytest.mark.parametrize(
    ("files", "mirror"),
    [
        ({"debian.sources": DEB822}, "http://mirror.example/debian"),
        ({"debian.list": ONE_LINE}, "http://mirror.example/debian/"),
        ({"a.sources": DISABLED, "b.list": VENDOR, "c.sources": DEB822}, "http://mirror.example/debian"),
    ],
)
def test_mirror_of_this_machine(tmp_path: Path, files: dict[str, str], mirror: str) -> None:
    assert host.debian_mirror(written(tmp_path, files)) == mirror


@pytest.mark.parametrize("files", [{}, {"a.sources": DISABLED}, {"b.list": VENDOR}])
def test_no_mirror_is_an_error(tmp_path: Path, files: dict[str, str]) -> None:
    with pytest.raises(LabError, match="No Debian mirror"):
        host.debian_mirror(written(tmp_path, files))


def written(folder: Path, files: dict[str, str]) -> list[Path]:
    for name, text in files.items():
        (folder / name).write_text(text)
    return [folder / name for name in files]


@pytest.mark.parametrize(
    ("mountinfo", "path"),
    [
        ("29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n", "/sys/fs/cgroup"),
        (
            HYBRID,
            "/sys/fs/cgroup/unified",
        ),
        ("41 40 0:31 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n", None),
        ("42 40 0:32 /part /mnt rw - cgroup2 cgroup2 rw\n", None),
    ],
)
def test_where_cgroup2_is_mounted(mountinfo: str, path: str | None) -> None:
    assert host.cgroup2_mount(mountinfo) == (Path(path) if path else None)


def test_available_memory() -> None:
    assert host.available_memory("MemTotal: 9 kB\nMemAvailable:   2048 kB\n") == 2 << 20
    with pytest.raises(LabError):
        host.available_memory("MemTotal: 9 kB\n")
