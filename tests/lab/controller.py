# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What tests do on the head node as an administrator, as the service's user, and as a user of the cluster."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from joblab import ssh
from joblab.demo.cluster import OPT_IN, USER, Cluster

SETTINGS = "/etc/job-recovery/settings.yml"
_BEGIN = "set -a; . /etc/job-recovery/environment; set +a; cd /var/lib/job-recovery; exec runuser -u job-recovery --"


@dataclass(frozen=True)
class Ended:
    """How a command on the head node ended."""

    rc: int
    output: str  # stdout and stderr


def on_head(cluster: Cluster, argv: Sequence[str], timeout: float = 120, stdin: str | None = None) -> Ended:
    """Run a command as root; it may fail."""
    done = ssh.run(cluster.instance, "head", argv, timeout=timeout, check=False, stdin=stdin)
    return Ended(done.returncode, done.stdout + done.stderr)


def as_service(cluster: Cluster, argv: Sequence[str], timeout: float = 120, stdin: str | None = None) -> Ended:
    """Run a command as the service's user, in its environment."""
    script = f"{_BEGIN} {shlex.join(argv)}"
    done = ssh.run(cluster.instance, "head", script, timeout=timeout, check=False, stdin=stdin)
    return Ended(done.returncode, done.stdout + done.stderr)


def by_hand(cluster: Cluster, playbook: str, timeout: float = 300, **extra: str) -> Ended:
    """What an administrator types: `job-recovery run PLAYBOOK --NAME VALUE ...`; `wait` has no value."""
    words = [part for name, value in extra.items() for part in (f"--{name}", value)[: 1 if name == "wait" else 2]]
    return on_head(cluster, ["job-recovery", "run", playbook, *words], timeout)


def submit(cluster: Cluster, script: str, options: Mapping[str, str], comment: str = OPT_IN) -> int:
    """Submit a batch script as a user, every text as it is given; the job's id."""
    argv = ["sbatch", "--parsable", "--requeue", "--open-mode=append", f"--comment={comment}"]
    argv += [f"--{name}={value}" for name, value in options.items()]
    words = f"cd /home/{USER}; HOME=/home/{USER} exec runuser -u {USER} -- {shlex.join(argv)}"
    done = ssh.run(cluster.instance, "head", words, stdin=f"#!/bin/bash\n{script}")
    return int(done.stdout.strip().split(";")[0])


@contextmanager
def settings_changed(cluster: Cluster, expression: str) -> Iterator[None]:
    """The settings changed by a sed expression for a while; recovery reads them with its next look."""
    keep = f"{SETTINGS}.kept"
    cluster.head(f"cp -a {SETTINGS} {keep} && sed -i -E {shlex.quote(expression)} {SETTINGS}")
    try:
        assert cluster.head(f"cmp -s {SETTINGS} {keep}; echo $?") == "1", f"{expression} changed nothing"
        yield
    finally:
        cluster.head(f"mv {keep} {SETTINGS}")
