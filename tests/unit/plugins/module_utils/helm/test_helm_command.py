# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import BadInput
from ansible_collections.mission_control.job_recovery.plugins.module_utils.helm import command


def wait_for(what, seconds=10.0):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if what():
            return True
        time.sleep(0.02)
    return False


def alive(pid):
    try:
        return pathlib.Path("/proc/%d/stat" % pid).read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_the_environment_is_helms_own():
    given = {"PATH": "/bin", "HOME": "/root", "HELM_DRIVER": "sql", "HELM_KUBETOKEN": "x", "DOCKER_CONFIG": "/d"}
    made = command.environment(given, "/private")
    assert made["HOME"] == "/root"
    assert "HELM_DRIVER" not in made
    assert "HELM_KUBETOKEN" not in made
    assert all(made[name].startswith("/private/") for name in made if name.startswith(("HELM_", "DOCKER_", "KUBE")))


def test_the_folder_is_private_and_goes(tmp_path):
    def fails():
        with command.private_folder(str(tmp_path)) as folder:
            path = folder.write("registry/login.json", "secret")
            assert os.stat(folder.path).st_mode & 0o777 == 0o700
            assert os.stat(path).st_mode & 0o777 == 0o600
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert list(tmp_path.iterdir()) == []


def test_what_is_forgotten_is_gone_before_the_end(tmp_path):
    with command.private_folder(str(tmp_path)) as folder:
        path = folder.write("registry/login.json", "secret")
        folder.forget("registry", "never-there")
        assert not os.path.exists(path)


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(BadInput, match="no temporary folder"), command.private_folder(str(tmp_path / "none")):
        pass


def test_progress_and_the_deadline(helm, tmp_path):
    helm.plays(upgrade=[{"sleep": 30}])
    ticks = []
    with command.private_folder(str(tmp_path)) as folder:
        caller = command.Helm(helm.path, folder, time.monotonic() + 1.5)
        ended = caller.run(["upgrade", "web"], tick=lambda: ticks.append(1), interval=0.3)
    assert ended.timed_out
    assert len(ticks) >= 2
    assert not alive(helm.calls[0]["pid"])


def test_helm_may_write_down_that_it_was_interrupted(helm, tmp_path):
    helm.plays(upgrade=[{"sleep": 30, "trap": 7}])
    with command.private_folder(str(tmp_path)) as folder:
        ended = command.Helm(helm.path, folder, time.monotonic() + 1.5).run(["upgrade", "web"])
    assert (ended.rc, ended.timed_out) == (7, True)


_RUN = """
import sys, time
from ansible_collections.mission_control.job_recovery.plugins.module_utils.helm import command
with command.interruptible(), command.private_folder(sys.argv[2]) as folder:
    folder.write("registry/login.json", "secret")
    helm = command.Helm(sys.argv[1], folder, time.monotonic() + 60)
    helm.run([sys.argv[3], "web"], outlives=sys.argv[3] == "upgrade")
"""


@pytest.fixture
def running(helm, tmp_path):
    """Starts a run that waits for helm; ended for good afterwards."""
    children = []
    (tmp_path / "work").mkdir()

    def start(verb):
        helm.plays(**{verb: [{"sleep": 60, "trap": 1}]})
        argv = [sys.executable, "-c", _RUN, helm.path, str(tmp_path / "work"), verb]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        children.append(subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env))
        assert wait_for(lambda: helm.calls), children[0].stdout.read()
        return children[0], helm.calls[0]["pid"]

    yield start
    for child in children:
        child.kill()
        child.communicate()
    for call in helm.calls:
        if alive(call["pid"]):
            os.kill(call["pid"], signal.SIGKILL)


def left(tmp_path):
    return list((tmp_path / "work").iterdir())


@pytest.mark.parametrize("verb", ["pull", "upgrade"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_an_interrupted_run_leaves_nothing(running, tmp_path, verb, number):
    child, helm_pid = running(verb)
    assert left(tmp_path)
    child.send_signal(number)
    child.communicate(timeout=20)
    assert child.returncode in (-number, 1)
    assert left(tmp_path) == []
    assert not alive(helm_pid)


def test_a_killed_run_leaves_no_login_and_no_helm_that_uses_it(running, tmp_path):
    child, helm_pid = running("pull")
    assert left(tmp_path)
    child.kill()
    assert wait_for(lambda: not left(tmp_path))
    assert wait_for(lambda: not alive(helm_pid))


def test_a_killed_run_lets_helm_finish_what_it_does_in_the_cluster(running, tmp_path):
    child, helm_pid = running("upgrade")
    child.kill()
    assert wait_for(lambda: not left(tmp_path))
    assert alive(helm_pid)


@pytest.mark.parametrize(
    ("words", "seen"),
    [
        (["/usr/local/bin/helm", "upgrade", "web", "x"], True),
        (["helm4", "upgrade", "web"], True),
        (["helm", "upgrade", "website"], False),
        (["vi", "helm", "web"], False),
        ([""], False),
    ],
)
def test_command_lines(tmp_path, words, seen):
    (tmp_path / "12").mkdir()
    (tmp_path / "12" / "cmdline").write_bytes("\0".join(words).encode() + b"\0")
    (tmp_path / "13").mkdir()  # has ended meanwhile
    (tmp_path / "self").mkdir()
    assert command.helms_at("web", "/opt/helm4", str(tmp_path)) == ([12] if seen else [])
