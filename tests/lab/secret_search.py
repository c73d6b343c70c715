# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where could a secret be seen? Each place is searched for the secrets, as they are and in base64.

Secrets reach the hosts by stdin only, and a finding names the secret and the place, never the text.
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from joblab import ssh
from joblab.demo.cluster import Cluster

_OURS = "/opt/job-recovery /var/lib/job-recovery /run/job-recovery"
FOLDERS = f"/etc {_OURS} /usr/local /home /tmp /var/tmp /var/log"

#: Reads {name: [forms]} from stdin, and says where one is: `name<TAB>place`.
_FIND = r"""
import json, os, subprocess, sys, time
wanted = {name: [form.encode() for form in forms] for name, forms in json.loads(sys.stdin.readline()).items()}
told = set()
def look(place, data):
    for name, forms in wanted.items():
        if (name, place) not in told and any(form in data for form in forms):
            told.add((name, place))
            print("%s\t%s" % (name, place), flush=True)
def read(path, most=8 << 20):
    try:
        with open(path, "rb") as handle:
            return handle.read(most)
    except OSError:
        return b""
def processes(numbers=None):
    for number in filter(str.isdigit, os.listdir("/proc") if numbers is None else numbers):
        for part in ("cmdline", "environ"):
            data = read("/proc/%s/%s" % (number, part))
            if data and number != str(os.getpid()):
                look("%s of %s" % (part, data.split(b"\0")[0].decode("utf-8", "replace")[:60] if part == "cmdline"
                                   else read("/proc/%s/comm" % number).decode().strip()), data)
def readable(folders, mode):
    command = ["find", *folders, "-xdev", "-type", "f", *mode, "-size", "-8M", "-print0"]
    for path in subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout.split(b"\0"):
        if path:
            look("file " + os.fsdecode(path), read(path))
"""
_WATCH = (
    _FIND
    + r"""
import threading
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
print("ready", flush=True)
# a process is read all the time while it is young, when it may still become another program, and else once a second
born, whole = {}, 0.0
while True:
    now, numbers = time.monotonic(), os.listdir("/proc")
    born = {number: born.get(number, now) for number in numbers}
    if now - whole > 1.0:
        processes(numbers)
        whole = now
    else:
        processes([number for number in numbers if now - born[number] < 2.0])
    time.sleep(0.02)
"""
)
_ONCE = (
    _FIND
    + r"""
processes()
folders = [folder for folder in %r.split() if os.path.isdir(folder)]
readable(folders, ["-perm", "/o+r"])
leftovers = ["/tmp", "/var/tmp", "/var/lib/job-recovery", "/run/job-recovery"]
readable([folder for folder in leftovers if os.path.isdir(folder)], [])
if os.path.isdir("/etc/job-recovery") and os.path.exists("/run/mysqld"):
    look("the ledger", subprocess.run(["mariadb-dump", "job_recovery"], stdout=subprocess.PIPE).stdout)
look("the journal", subprocess.run(["journalctl", "--no-pager", "-o", "cat"], stdout=subprocess.PIPE).stdout)
"""
    % FOLDERS
)


def forms_of(secret: str) -> list[str]:
    """The secret as it is, and what every base64 of a text that contains it contains."""
    data = secret.encode()
    forms = [secret]
    for before in range(3):
        # bits of the neighbours are in the first and the last characters; those are left away
        encoded = base64.b64encode(b"\0" * before + data).decode()
        forms.append(encoded[(before * 8 + 5) // 6 : (before + len(data)) * 8 // 6])
    return [*forms, *(form.replace("+", "-").replace("/", "_") for form in forms[1:] if "+" in form or "/" in form)]


def secrets_of(cluster: Cluster) -> dict[str, str]:
    """The secrets of the lab and of the installation, by name."""
    own = {
        "ledger's password": "cat /etc/job-recovery/ledger.password",
        "BMC's password": "cut -d: -f2- /etc/job-recovery/bmc.credentials",
        "token of the ServiceAccount": "sed -n 's/^ *token: \"\\(.*\\)\"/\\1/p' /etc/job-recovery/kubeconfig",
        "SSH key": "sed -n 3p /etc/job-recovery/ssh/id_ed25519",
    }
    found = {name: cluster.head(script) for name, script in own.items()}
    folder = cluster.instance.state / "secret"
    found["root's password of MariaDB"] = (folder / "mysql_root").read_text(encoding="utf-8").strip()
    found["token of the registry"] = (folder / "ngc").read_text(encoding="utf-8").strip()
    for name, secret in found.items():
        assert len(secret) > 11, f"{name} could not be read"
    return found


def in_output(secrets: Mapping[str, str], output: str) -> list[str]:
    """Names of the secrets in a text."""
    return sorted(name for name, secret in secrets.items() if any(form in output for form in forms_of(secret)))


def in_place(cluster: Cluster, secrets: Mapping[str, str]) -> list[str]:
    """`secret<TAB>host: place` for files that others can read, leftovers, ledger, journal and processes."""
    found = []
    for host in ("head", *cluster.instance.nodes):
        done = ssh.run(cluster.instance, host, ["python3", "-c", _ONCE], stdin=_question(secrets), timeout=120)
        found += _findings(host, done.stdout)
    return found


@contextmanager
def watched(secrets: Mapping[str, str]) -> Iterator[list[str]]:
    """Look at all processes again and again, those of the hosts too, which are this machine's; complete at the end."""
    found: list[str] = []
    watch = [sys.executable, "-c", _WATCH]
    with subprocess.Popen(watch, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        child.stdin.write(_question(secrets))
        child.stdin.flush()
        assert child.stdout.readline() == "ready\n"
        reader = threading.Thread(target=lambda: found.extend(child.stdout.read().splitlines()))
        reader.start()
        try:
            yield found
        finally:
            child.stdin.close()
            reader.join(30)


def _question(secrets: Mapping[str, str]) -> str:
    return json.dumps({name: forms_of(secret) for name, secret in secrets.items()}) + "\n"


def _findings(host: str, output: str) -> list[str]:
    lines = (line.split("\t", 1) for line in output.splitlines())
    return [f"{name}\t{host}: {place}" for name, place in lines]
