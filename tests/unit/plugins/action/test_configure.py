# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`configure.yml` as it is run, with a terminal and without.

The database is a real MariaDB; Slurm's commands are executables on PATH, the API server is an HTTP server.
"""

from __future__ import annotations

import json
import os
import pathlib
import select
import signal
import subprocess
import sys
import termios
import time
from typing import Any, Iterator

import pytest
from ansible.parsing.vault import VaultLib, VaultSecret
from ansible_collections.mission_control.job_recovery.tests.stand_ins.charts import ChartRepository
from ansible_collections.mission_control.job_recovery.tests.stand_ins.loki import LokiStandIn
from ansible_collections.mission_control.job_recovery.tests.unit.plugins.module_utils.kubernetes.api_server import (
    ApiServer,
)

PLAYBOOKS = pathlib.Path(__file__).resolve().parents[4] / "playbooks"
PASSWORD = "a'\"b\\ {{ x }} #$`id`"
SCONTROL = r"""#!/usr/bin/python3
import os, sys
name = {"": "alpha", %r: "beta"}.get(os.environ.get("SLURM_CONF", ""))
words = [word for word in sys.argv[1:] if word != "--all"]
if words == ["show", "config"]:
    print("Configuration data as of 2026-11-30T10:00:00\nSLURM_VERSION = 24.11.5\nClusterName = " + name)
elif words == ["--json", "show", "node"]:
    print('{"nodes": [{"name": "n1", "state": ["IDLE"], "partitions": ["%%s-batch"]}], "errors": []}' %% name)
else:
    sys.exit("unknown arguments: %%r" %% sys.argv)
"""
# Makes the terminal that is its standard input the one that controls it, and runs a command.
ON_A_TERMINAL = """import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execvp(sys.argv[1], sys.argv[1:])
"""
# Enough for a run in which nobody is asked.
GIVEN = {
    "job_recovery_slurm_conf": "",
    "job_recovery_partitions": ["alpha-batch"],
    "job_recovery_kubernetes": False,
    "ledger_admin_user": "configure",
}


class Run:
    """A cluster that is not there, an inventory, and runs of the playbook."""

    def __init__(self, folder: pathlib.Path, server: Any, api: ApiServer) -> None:
        self.folder = folder
        self.all = folder / "inventory/group_vars/all"
        self.beta = folder / "cm/beta/slurm.conf"
        self.beta.parent.mkdir(parents=True)
        self.beta.touch()
        (folder / "bin").mkdir()
        (folder / "bin/scontrol").write_text(SCONTROL % str(self.beta))
        (folder / "bin/scontrol").chmod(0o755)
        (folder / "vault.password").write_text("of the vault\n")
        self.kubeconfig = self._kubeconfig(api)
        self.socket = server.socket
        (folder / "inventory").mkdir()
        (folder / "inventory/hosts.json").write_text(json.dumps({"all": {
            "vars": {"ansible_connection": "local", "ansible_become": False,
                     "ansible_python_interpreter": sys.executable},
            "children": {"controller": {"hosts": {"head1": {}}}},
        }}))
        with server.root() as root, root.cursor() as cursor:
            cursor.execute("CREATE OR REPLACE USER configure@localhost IDENTIFIED BY %s", (PASSWORD,))

    def _kubeconfig(self, api: ApiServer) -> str:
        path = self.folder / "kubeconfig"
        path.write_text(json.dumps({
            "contexts": [{"name": name, "context": {"cluster": name, "user": "u"}} for name in ("one", "two")],
            "clusters": [{"name": "one", "cluster": {"server": "http://127.0.0.1:1"}},
                         {"name": "two", "cluster": {"server": api.url}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
        }))
        return str(path)

    def variables(self, values: dict[str, Any]) -> str:
        """A file for -e, so that no secret is an argument."""
        path = self.folder / "given.json"
        path.write_text(json.dumps(values))
        return "@%s" % path

    def command(self, *arguments: str) -> list[str]:
        return ["ansible-playbook", "-i", str(self.folder / "inventory/hosts.json"), *arguments,
                str(PLAYBOOKS / "configure.yml")]

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "PATH": "%s:%s" % (self.folder / "bin", os.environ["PATH"]), "HOME": str(self.folder),
                "KUBECONFIG": self.kubeconfig, "ANSIBLE_NOCOLOR": "1",
                "no_proxy": "*"}

    def unattended(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(self.command(*arguments), env=self.environment, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=120, check=False)

    def attended(self, answers: list[tuple[str, str]], *arguments: str) -> str:
        """Answer on a terminal: each answer is given when its question has appeared and is waited for."""
        ours, theirs = os.openpty()
        process = subprocess.Popen([sys.executable, "-c", ON_A_TERMINAL, *self.command(*arguments)],
                                   env=self.environment, stdin=theirs, stdout=theirs, stderr=theirs,
                                   start_new_session=True)
        told, seen, until = "", 0, time.monotonic() + 150
        pending = list(answers)
        try:
            while process.poll() is None and time.monotonic() < until:
                told += _read(ours)
                # Ansible sets the terminal to single characters when it waits for an answer, and drops what came before
                waiting = not termios.tcgetattr(theirs)[3] & termios.ICANON
                if waiting and pending and pending[0][0] in told[seen:]:
                    time.sleep(0.2)
                    seen = len(told)
                    os.write(ours, pending.pop(0)[1].encode() + b"\r")
            told += _read(ours)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)
            os.close(ours)
            os.close(theirs)
        assert not pending, told
        assert process.returncode == 0, told
        return told

    def secrets(self, password: str = "of the vault") -> str:
        vault = VaultLib([("default", VaultSecret(password.encode()))])
        return vault.decrypt((self.all / "vault.yml").read_bytes()).decode()


@pytest.fixture
def run(tmp_path: pathlib.Path, mariadb: Any) -> Iterator[Run]:
    api = ApiServer()
    api.tell("GET", "/version", 200, {"gitVersion": "v1.36.0"}, times=9)
    api.put("/api/v1/namespaces/ml", {"metadata": {"name": "ml"}})
    api.put("/api/v1/nodes/n1", {"metadata": {"name": "n1"}})
    yield Run(tmp_path, mariadb, api)
    api.close()


def _read(terminal: int) -> str:
    """What is on the terminal now, waiting a moment for it."""
    text = b""
    while select.select([terminal], [], [], 0.1)[0]:
        text += os.read(terminal, 65536)
    return text.decode("utf-8", "replace")


def places(run: Run) -> dict[str, Any]:
    """Where this test's things are, which the defaults cannot know."""
    return {**GIVEN, "ledger_admin_unix_socket": run.socket, "ledger_admin_password": PASSWORD,
            "configure_vault_password_file": str(run.folder / "vault.password")}


def test_without_a_terminal_it_writes_what_is_given_and_never_shows_a_secret(run: Run) -> None:
    given = places(run)
    given["ledger_admin_password"] = {"__ansible_unsafe": PASSWORD}
    first = run.unattended("-vvv", "--diff", "-e", run.variables(given))
    assert first.returncode == 0, first.stdout
    assert "the database server takes the account configure" in first.stdout
    assert "id`" not in first.stdout + first.stderr
    settings = (run.all / "job_recovery.yml").read_text()
    assert 'job_recovery_cluster: "alpha"' in settings
    assert 'ledger_admin_password: "{{ vault_mysql_root_password }}"' in settings
    assert (run.all / "vault.yml").stat().st_mode & 0o777 == 0o600
    assert "!unsafe" in run.secrets()
    assert "id`" in run.secrets()

    # by hand: a comment, an order, another value; and again, with what is written
    mine = "# mine\n" + settings.replace('"observe"', "act  # since May")
    (run.all / "job_recovery.yml").write_text(mine)
    vault = (run.all / "vault.yml").read_bytes()
    again = run.unattended("--vault-password-file", str(run.folder / "vault.password"))
    assert again.returncode == 0, again.stdout
    assert "changed=0" in again.stdout
    assert (run.all / "job_recovery.yml").read_text() == mine
    assert (run.all / "vault.yml").read_bytes() == vault


def test_without_a_terminal_what_is_missing_is_listed_and_nothing_is_written(run: Run) -> None:
    ended = run.unattended("-e", run.variables({"job_recovery_slurm_bin_dir": str(run.folder / "bin")}))
    assert ended.returncode != 0
    for words in ("job_recovery_partitions", "job_recovery_kubernetes_context", "one, two", "job_recovery_namespaces"):
        assert words in ended.stdout + ended.stderr
    assert not run.all.exists()


def test_a_wrong_password_is_an_error_and_nothing_is_written(run: Run) -> None:
    ended = run.unattended("-e", run.variables({**places(run), "ledger_admin_password": "wrong-one"}))
    assert ended.returncode != 0
    assert "Access denied" in ended.stdout + ended.stderr
    assert "wrong-one" not in ended.stdout + ended.stderr
    assert not run.all.exists()


@pytest.fixture
def charts() -> Iterator[ChartRepository]:
    with ChartRepository() as served:
        served.ingress = ("robot", "nvapi-abc")
        yield served


@pytest.fixture
def loki() -> Iterator[LokiStandIn]:
    with LokiStandIn() as served:
        served.ingress = ("reader", "loki-secret")
        served.put({"job": "x"}, "a line")
        yield served


def test_with_a_terminal_it_asks_offers_tests_and_asks_again(
    run: Run, charts: ChartRepository, loki: LokiStandIn
) -> None:
    given = {"ledger_admin_unix_socket": run.socket, "job_recovery_slurm_conf": str(run.beta)}
    told = run.attended(
        [
            ("Is there Slurm", ""),
            ("Name of this cluster", ""),
            ("Slurm partitions", "alpha-batch"),  # the other cluster's
            ("Slurm partitions", "beta-batch"),
            ("Is there Kubernetes", "yes"),
            ("An administrator's kubeconfig", ""),
            ("Which Kubernetes cluster", "one"),
            ("Is there Kubernetes", ""),
            ("An administrator's kubeconfig", ""),
            ("Which Kubernetes cluster", "2"),
            ("Kubernetes namespaces", "ml"),
            ("Shall recovery only observe", ""),
            ("The database administrator's account", "configure"),
            ("Its password", "wrong-one"),
            ("The database administrator's account", "configure"),
            ("Its password", PASSWORD),
            ("A new password for Ansible Vault", "typed"),
            ("The same again", "typed"),
            ("Account on the BMCs", ""),
            ("Chart repository", charts.address),
            ("Its account", "robot"),
            ("Its token", "nvapi-wrong"),
            ("Chart repository", charts.address),
            ("Its account", "robot"),
            ("Its token", "nvapi-abc"),
            ("Loki's address", loki.url),
            ("The account that the Ingress wants", "reader"),
            ("Its password", "loki-wrong"),
            ("Loki's address", loki.url),
            ("The account that the Ingress wants", "reader"),
            ("Its password", "loki-secret"),
        ],
        "-e", run.variables(given),
    )
    assert "%s answers, and accepts the account" % charts.address in told
    assert "credentials are not accepted" in told
    assert "%s answers to the account" % loki.url in told
    assert "there is no 'alpha-batch'; there are: beta-batch" in told
    assert "This does not work: database server" in told
    assert "Access denied" in told
    assert "Kubernetes v1.36.0 answers, 1 nodes" in told
    for secret in ("wrong-one", PASSWORD, "nvapi-abc", "nvapi-wrong", "loki-secret", "loki-wrong", "typed"):
        assert secret not in told
    settings = (run.all / "job_recovery.yml").read_text()
    assert 'job_recovery_kubernetes_context: "two"' in settings
    assert 'job_recovery_cluster: "beta"' in settings
    assert "nvapi-abc" in run.secrets("typed")


def test_a_file_that_the_folder_would_hide_is_refused(run: Run) -> None:
    run.all.parent.mkdir(parents=True)
    (run.all.parent / "all.yml").write_text("a: 1\n")
    ended = run.unattended("-e", run.variables(places(run)))
    assert ended.returncode != 0
    assert "would be hidden" in ended.stdout + ended.stderr
