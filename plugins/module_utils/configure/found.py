# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module `configure_info`: what a head node has that the settings name. Reads only.

Slurm clusters are found by their configuration files, as Slurm's packages, SchedMD's documentation and Base Command
Manager place them; slurmctld itself then tells the cluster's name and its partitions. A database login is tried with
the server's own command line client, because before the first installation there is no other on a head node.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
import stat
from typing import Any, Mapping, Optional, Sequence

from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks.database import run_client
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import Absent, RecoveryError
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.cli import SlurmCli

SPEC: dict[str, Any] = {
    "argument_spec": {
        "slurm_bin_dir": {"type": "str", "default": ""},
        "slurm_conf": {"type": "str", "default": ""},
        "slurm_confs": {
            "type": "list",
            "elements": "str",
            "default": ["/etc/slurm*/slurm.conf", "/cm/shared/apps/slurm/var/etc/slurm.conf",
                        "/cm/shared/apps/slurm/var/etc/*/slurm.conf"],
        },
        "sockets": {
            "type": "list",
            "elements": "str",
            "default": ["/run/mysqld/mysqld.sock", "/var/lib/mysql/mysql.sock", "/var/run/mysql/mysql.sock"],
        },
        "database": {
            "type": "dict",
            "options": {
                "user": {"type": "str", "default": "root"},
                "password": {"type": "str", "default": "", "no_log": True},
                "unix_socket": {"type": "str", "default": ""},
                "host": {"type": "str", "default": "127.0.0.1"},
                "port": {"type": "int", "default": 3306},
                "ca_file": {"type": "str", "default": ""},
            },
        },
        "timeout": {"type": "int", "default": 10},
    },
    "supports_check_mode": True,
}

OK = "ok"
REFUSED = "refused"
UNREACHABLE = "unreachable"
UNKNOWN = "unknown"

# Where sites put Slurm's commands that are not on PATH; the first is Base Command Manager's.
_BIN_DIRS = ("/cm/local/apps/slurm/current/bin", "/opt/slurm/bin", "/usr/local/slurm/bin", "/usr/local/bin")
_ERROR = re.compile(r"ERROR (\d+)")
_NO_SERVER = ("2002", "2003", "2005", "2006", "2013")  # CR_CONNECTION_ERROR and its kin


def run(params: dict[str, Any], check_mode: bool) -> dict[str, Any]:  # noqa: ARG001 - changes nothing in any mode
    """What is there: `{changed, slurm_bin_dir, slurm: [...], sockets: [...], database: {status, message} or none}`."""
    bin_dir = params["slurm_bin_dir"] or find_bin_dir(_BIN_DIRS)
    confs = [params["slurm_conf"]] if params["slurm_conf"] else find_confs(params["slurm_confs"])
    database = params["database"]
    return {
        "changed": False,
        "slurm_bin_dir": bin_dir or "",
        "slurm": find_clusters(bin_dir, confs, params["timeout"]) if bin_dir is not None else [],
        "sockets": [path for path in params["sockets"] if _is_socket(path)],
        "database": try_login(database, params["timeout"]) if database else None,
    }


def find_bin_dir(candidates: Sequence[str]) -> Optional[str]:
    """The folder of Slurm's commands: empty where they are on PATH, None where they are nowhere."""
    if shutil.which("scontrol"):
        return ""
    return next((path for path in candidates if os.access(os.path.join(path, "scontrol"), os.X_OK)), None)


def find_confs(patterns: Sequence[str]) -> list[str]:
    """Paths of slurm.conf files, after the empty one: what the commands find by themselves."""
    found = sorted({os.path.realpath(path) for pattern in patterns for path in glob.glob(pattern)})
    return ["", *found]


def find_clusters(bin_dir: str, confs: Sequence[str], timeout: float) -> list[dict[str, Any]]:
    """The clusters that these files name, each once: `{cluster, conf, partitions, error}`.

    One whose slurmctld does not answer is there with its error, except where it is
    merely not configured by default.
    """
    clusters: dict[tuple[str, str], dict[str, Any]] = {}
    troubles = []
    for conf in confs:
        slurm = SlurmCli(bin_dir or None, timeout, conf or None)
        try:
            settings = slurm.config()
            nodes = slurm.nodes()
        except RecoveryError as exc:
            if conf:
                troubles.append({"cluster": "", "conf": conf, "partitions": [], "error": str(exc)})
            continue
        key = (settings.get("ClusterName", ""), settings.get("SlurmctldHost[0]", ""))
        partitions = sorted({name for node in nodes for name in node.partitions})
        clusters.setdefault(key, {"cluster": key[0], "conf": conf, "partitions": partitions, "error": ""})
    return [*clusters.values(), *troubles]


def try_login(database: Mapping[str, Any], timeout: float) -> dict[str, str]:
    """Whether the server takes this user and password: `{status: ok | refused | unreachable | unknown, message}`."""
    try:
        ended = run_client({**database, "timeout": timeout}, "SELECT 1")
    except Absent:
        return {"status": UNKNOWN, "message": "there is no client (mariadb or mysql) to try it with"}
    if ended.timed_out:
        return {"status": UNREACHABLE, "message": "no answer within %g s" % timeout}
    return judge_login(ended.rc, ended.stderr)


def judge_login(rc: int, stderr: str) -> dict[str, str]:
    """What the client's end means; its errors name user and host, and never the password."""
    if rc == 0:
        return {"status": OK, "message": ""}
    line = next((line.strip() for line in stderr.splitlines() if _ERROR.match(line.strip())), "")
    if not line:
        return {"status": UNKNOWN, "message": " ".join(stderr.split())[:200] or "the client ended with %d" % rc}
    return {"status": UNREACHABLE if _ERROR.match(line).group(1) in _NO_SERVER else REFUSED, "message": line[:300]}


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.stat(path).st_mode)
    except OSError:
        return False
