# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A site of a thousand nodes that exist as answers only: their SSH, their BMCs, Slurm's commands, the API server.

Ansible, its SSH connection, our modules and all that they send and parse are real; an executable in the place of `ssh`
answers for each node what a node answers, and Slurm's commands say what a cluster of this size says.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from ansible_collections.mission_control.job_recovery.tests.unit.plugins.module_utils.kubernetes.api_server import (
    ApiServer,
)

NODES = 1000
LOST = 10  # the last of them have no route
OLD = 40  # the first of them have a Python that is too old
SWAPPED = ("node0101", "node0102")  # each has the other's BMC
MEMORY_MB = 515000
SOCKETS, CORES, THREADS = 2, 28, 112

_SSH = """#!/bin/sh
# Answers in the place of a node. Called as ssh is: options, the host, a command.
for word; do host=$last; last=$word; done
number=${host#node}
while [ "${number#0}" != "$number" ]; do number=${number#0}; done
if [ "$number" -gt %(reached)d ]; then
    echo "ssh: connect to host $host port 22: No route to host" >&2
    exit 255
fi
python=3.11
[ "$number" -gt %(old)d ] || python=3.6
now=$(date +%%s)
printf 'uid=0\\nasked=%%s\\nclock=%%s\\n' "$now" "$now"
printf 'slurm_name=%%s\\nkubernetes_name=%%s\\nhostname=%%s\\nssh_address=%%s\\n' "$host" "$host" "$host" "$host"
printf 'bmc_url=%(bmcs)s/redfish/v1/Systems/%%s\\n' "$host"
printf 'boot_id=1b4e28ba-2fa1-11d2-883f-%%012d\\nmachine_id=%%032d\\n' "$number" "$number"
printf 'smbios_uuid=4c4c4544-0039-5910-804e-%%012d\\npython=%%s\\n' "$number" "$python"
printf 'memory_kb=%%d\\nsockets=%(sockets)d\\ncores=%(cores)d\\nthreads=%(threads)d\\n' %(memory_kb)d
printf 'slurmd_enabled=enabled\\nkubelet_enabled=enabled\\n'
printf 'fs=ext4 900000000 / /dev/sda1\\nfs=nfs4 90000000000 /cm/shared 10.141.255.254:/cm/shared\\n'
"""

_SCONTROL = """#!/bin/sh
case "$*" in
    ping) echo 'Slurmctld(primary) at head is UP' ;;
    'show config') cat '%(folder)s/config' ;;
    '--all --json show node') cat '%(folder)s/nodes.json' ;;
    *) echo "unknown arguments $*" >&2; exit 97 ;;
esac
"""

_CONFIG = {
    "AccountingStorageType": "accounting_storage/slurmdbd",
    "AccountingStoreFlags": "job_comment",
    "JobRequeue": "1",
    "MaxBatchRequeue": "5",
    "MessageTimeout": "10 sec",
    "MinJobAge": "600 sec",
    "RebootProgram": "/usr/sbin/reboot",
    "ReturnToService": "1",
    "SLURM_VERSION": "24.11.5",
    "SlurmUser": "slurm(64030)",
    "SlurmdSpoolDir": "/var/spool/slurmd",
    "SlurmdTimeout": "300 sec",
    "StateSaveLocation": "/var/spool/slurmctld",
    "UnkillableStepTimeout": "180 sec",
}


class Simulation:
    """The site, as a context: its inventory, where its report comes, and what must stand there (`found` by id)."""

    def __init__(self, folder: Path) -> None:
        self.names = ["node%04d" % number for number in range(1, NODES + 1)]
        self.inventory = folder / "inventory.json"
        self.report = folder / "preflight.json"
        self.expected = {
            "nodes_reachable": "%d of %d; node[0991-1000]: no route to it" % (NODES - LOST + 1, NODES + 1),
            "nodes_python": "%d of %d; node[0001-0040]: 3.6" % (NODES - LOST + 1 - OLD, NODES - LOST + 1),
            "cluster_cpus": "%d cores, %d threads on %d nodes (node[0991-1000]: as told by Slurm)"
            % (NODES * SOCKETS * CORES, NODES * THREADS, NODES),
            "hardware_sources": "agreed on %d nodes" % NODES,
            "slurm_nodes": "%d nodes in 1 partitions" % NODES,
            "slurm_spool_dir": "SlurmdSpoolDir=/var/spool/slurmd",
            "identity_names": "%d nodes" % (NODES - LOST),
            "identity_power": "%d BMCs; node[0101-0102]: its BMC tells another machine's UUID" % (NODES - LOST),
        }
        self._folder = folder
        self._api = ApiServer()
        self._bmcs = _Bmcs()

    def __enter__(self) -> Simulation:
        self._slurm()
        self._kubernetes()
        threading.Thread(target=self._bmcs.serve_forever, args=(0.05,), daemon=True).start()
        self.inventory.write_text(json.dumps(self._content()), encoding="utf-8")
        return self

    def __exit__(self, *_exc: object) -> None:
        self._api.close()
        self._bmcs.shutdown()
        self._bmcs.server_close()

    def _content(self) -> dict[str, Any]:
        numbers = {
            "reached": NODES - LOST,
            "old": OLD,
            "bmcs": self._bmcs.url,
            "sockets": SOCKETS,
            "cores": SOCKETS * CORES,
            "threads": THREADS,
            "memory_kb": MEMORY_MB * 1024,
        }
        variables = {
            "ansible_user": "root",
            "ansible_ssh_executable": self._executable("ssh", _SSH % numbers),
            "ansible_ssh_retries": 0,
            "job_recovery_cluster": "simulated",
            "job_recovery_partitions": ["main"],
            "job_recovery_namespaces": ["default"],
            "job_recovery_slurm_bin_dir": str(self._folder),
            "job_recovery_kubernetes_admin_kubeconfig": self._api.kubeconfig(self._folder),
            "job_recovery_bmc_user": "recovery",
            "job_recovery_bmc_password": "simulated",
            "ledger_admin_unix_socket": str(self._folder / "no-database"),
            "preflight_active_command": "true",
            "preflight_report": str(self.report),
            "preflight_page": str(self._folder / "preflight.html"),
        }
        head = {"ansible_connection": "local", "ansible_python_interpreter": "{{ ansible_playbook_python }}"}
        return {
            "all": {
                "vars": variables,
                "children": {
                    "controller": {"hosts": {"head": head}},
                    "compute": {"hosts": {name: {} for name in self.names}},
                },
            }
        }

    def _slurm(self) -> None:
        nodes = [
            {
                "name": name,
                "hostname": name,
                "address": name,
                "state": ["IDLE"],
                "partitions": ["main"],
                "sockets": SOCKETS,
                "cores": CORES,
                "cpus": THREADS,
                "real_memory": MEMORY_MB - 10000,
                "version": "24.11.5",
            }
            for name in self.names
        ]
        (self._folder / "nodes.json").write_text(json.dumps({"nodes": nodes, "errors": []}), encoding="utf-8")
        text = "".join("%s = %s\n" % item for item in _CONFIG.items())
        (self._folder / "config").write_text(text, encoding="utf-8")
        self._executable("scontrol", _SCONTROL % {"folder": self._folder})
        self._executable("sacctmgr", "#!/bin/sh\necho 'job-recovery|Administrator'\n")

    def _kubernetes(self) -> None:
        for number, name in enumerate(self.names, 1):
            info = {"machineID": "%032d" % number, "bootID": "1b4e28ba-2fa1-11d2-883f-%012d" % number}
            capacity = {"cpu": str(THREADS), "memory": "%dMi" % MEMORY_MB}
            self._api.put("/api/v1/nodes/" + name, {"status": {"capacity": capacity, "nodeInfo": info}})

    def _executable(self, name: str, text: str) -> str:
        path = self._folder / name
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)
        return str(path)


class _Bmcs(ThreadingHTTPServer):
    """The BMCs of all nodes."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Bmc)
        self.url = "http://127.0.0.1:%d" % self.server_address[1]


class _Bmc(BaseHTTPRequestHandler):
    def log_message(self, *_args: Any) -> None:
        pass

    def do_GET(self) -> None:
        name = self.path.rsplit("/", 1)[1]
        if name in SWAPPED:
            name = SWAPPED[1 - SWAPPED.index(name)]
        action = {"target": "/reset", "ResetType@Redfish.AllowableValues": ["On", "ForceOff"]}
        system = {
            "PowerState": "On",
            "UUID": "4c4c4544-0039-5910-804e-%012d" % int(name[len("node") :]),
            "Actions": {"#ComputerSystem.Reset": action},
        }
        body = json.dumps(system).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
