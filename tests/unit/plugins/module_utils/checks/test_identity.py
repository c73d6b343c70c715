# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import base64
import glob
import json
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks.identity import SPEC, run

PASSWORD = "pa:ss$'\"`\\ {{ 1 }}"
UUIDS = ["4c4c4544-0039-5910-804e-b6c04f4d373%d" % number for number in range(4)]


def node(number, **other):
    name = "n%d" % number
    made = {
        "name": name,
        "slurm_name": name,
        "kubernetes_name": name,
        "ssh_address": "10.0.0.%d" % number,
        "bmc_url": "",
        "hostname": name,
        "machine_id": "%032x" % number,
        "boot_id": "00000000-0000-0000-0000-%012x" % number,
        "smbios_uuid": UUIDS[number % 4],
    }
    return {**made, **other}


def known(nodes, **kubernetes):
    return {
        "slurm_nodes": [{"name": one["slurm_name"], "hostname": one["hostname"]} for one in nodes],
        "kubernetes_nodes": [
            {"name": one["kubernetes_name"], "machine_id": one["machine_id"], "boot_id": one["boot_id"], **kubernetes}
            for one in nodes
        ],
    }


def checks(nodes, **params):
    defaults = {name: option.get("default") for name, option in SPEC["argument_spec"].items()}
    return {item["id"]: item for item in run({**defaults, "nodes": nodes, **params}, False)["checks"]}


def test_all_is_well():
    nodes = [node(1), node(2)]
    found = checks(nodes, **known(nodes))
    assert [found[name]["status"] for name in ("identity_names", "identity_machines")] == ["passed", "passed"]
    assert found["identity_power"]["status"] == "warning"  # no BMC: allowed, and said
    assert "without one: n[1-2]" in found["identity_power"]["found"]


def test_sources_that_were_not_asked_hold_up_nothing():
    found = checks([node(1), node(2)])
    assert found["identity_names"]["status"] == "passed"


@pytest.mark.parametrize(
    ("check_id", "change", "words"),
    [
        ("identity_names", {"slurm_name": "n2"}, "n[1-2]: shares its name in Slurm with another node"),
        ("identity_names", {"kubernetes_name": "n2"}, "shares its name in Kubernetes"),
        ("identity_names", {"ssh_address": "10.0.0.2"}, "shares its SSH address"),
        ("identity_names", {"slurm_name": "gone"}, "n1: is not known to Slurm"),
        ("identity_names", {"kubernetes_name": "gone"}, "n1: is not known to Kubernetes"),
        ("identity_names", {"slurm_name": "", "kubernetes_name": ""}, "has no name in Slurm or in Kubernetes"),
        ("identity_machines", {"hostname": "other"}, "n1: Slurm's NodeHostName is not its host name"),
        ("identity_machines", {"machine_id": "f" * 32}, "n1: Kubernetes knows another machine-id"),
        ("identity_machines", {"boot_id": "x"}, "n1: Kubernetes knows another boot ID"),
        ("identity_machines", {"smbios_uuid": UUIDS[2]}, "n[1-2]: shares its SMBIOS UUID"),
    ],
)
def test_a_name_that_leads_elsewhere(check_id, change, words):
    nodes = [node(1), node(2)]
    found = checks([{**nodes[0], **change}, nodes[1]], **known(nodes))
    assert (found[check_id]["status"], words in found[check_id]["found"]) == ("failed", True), found[check_id]
    assert found[check_id]["hint"]


@pytest.mark.parametrize(
    "change",
    [
        {"hostname": "n1.cluster.example"},  # the domain differs on many sites
        {"hostname": "N1"},
        {"hostname": ""},
        {"smbios_uuid": ""},
        {"kubernetes_name": ""},  # a node outside Kubernetes
    ],
)
def test_what_is_no_fault(change):
    nodes = [node(1), node(2)]
    found = checks([{**nodes[0], **change}, nodes[1]], **known(nodes))
    assert (found["identity_names"]["status"], found["identity_machines"]["status"]) == ("passed", "passed")


def test_an_image_that_was_cloned_with_its_machine_id():
    nodes = [node(number, machine_id="a" * 32, smbios_uuid="") for number in range(1, 400)]
    found = checks(nodes)["identity_machines"]
    assert found["found"] == "n[1-399]: shares its machine-id with another node"


def test_placeholders_of_boards_without_a_uuid_are_not_shared():
    nodes = [node(number, smbios_uuid="03000200-0400-0500-0006-000700080009") for number in (1, 2)]
    assert checks(nodes)["identity_machines"]["status"] == "passed"


# ---- BMCs ----


class Bmcs(ThreadingHTTPServer):
    """One server for the BMCs of many nodes: by system's name what it answers, a status or a ComputerSystem."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.systems = {}
        self.posts = 0

    def url(self, name):
        return "http://127.0.0.1:%d/redfish/v1/Systems/%s" % (self.server_address[1], name)


class _Handler(BaseHTTPRequestHandler):
    def log_message(self, *_args):
        pass

    def do_GET(self):
        wanted = "Basic " + base64.b64encode(("recovery:" + PASSWORD).encode()).decode()
        system = self.server.systems.get(self.path.rsplit("/", 1)[1], 404)
        if self.headers.get("Authorization") != wanted:
            system = 401
        body = b"{}" if isinstance(system, int) else json.dumps(system).encode()
        self.send_response(system if isinstance(system, int) else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        self.server.posts += 1
        self.send_error(405)


@pytest.fixture
def bmcs():
    server = Bmcs()
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def system(uuid, types=("On", "ForceOff", "GracefulShutdown")):
    action = {"target": "/reset", "ResetType@Redfish.AllowableValues": list(types)}
    return {"PowerState": "On", "UUID": uuid, "Actions": {"#ComputerSystem.Reset": action}}


def power(bmcs, answer, user="recovery", password=PASSWORD, **other):
    bmcs.systems["n1"] = answer
    one = node(1, bmc_url=bmcs.url("n1"), **other)
    return checks([one], bmc_user=user, bmc_password=password, bmc_timeout=3.0)["identity_power"]


@pytest.mark.parametrize(
    ("answer", "status", "words"),
    [
        (system(UUIDS[1]), "passed", "1 BMCs"),
        (system(UUIDS[1].upper()), "passed", "1 BMCs"),
        (system(UUIDS[2]), "failed", "n1: its BMC tells another machine's UUID"),
        (system(""), "failed", "its BMC tells no UUID"),
        (system(UUIDS[1], ["GracefulRestart"]), "failed", "its BMC offers no On and no ForceOff"),
        (system(UUIDS[1], ["On"]), "failed", "its BMC offers no ForceOff"),
        ({"PowerState": "On", "UUID": UUIDS[1]}, "failed", "its BMC offers no reset"),
        ({"Name": "a chassis"}, "failed", "no ComputerSystem"),
        (404, "failed", "there is no such system"),
        (403, "failed", "refuses our account"),
        (503, "unknown", "cannot answer now"),
    ],
)
def test_the_power_path(bmcs, answer, status, words):
    check = power(bmcs, answer)
    assert (check["status"], words in check["found"]) == (status, True), check
    assert "http://" not in check["found"], "the same cause must be the same text"
    assert bmcs.posts == 0


@pytest.mark.parametrize(
    ("uuid", "status", "words"),
    [(UUIDS[1], "passed", "1 BMCs"), (UUIDS[2], "failed", "another machine's UUID"), ("", "failed", "its BMC")],
)
def test_the_sites_own_commands_tell_the_identity_too(uuid, status, words):
    commands = {
        "status": ["printf", "%s", "{name}: ON"],
        "identify": ["printf", "%s", uuid],
        "switch_on": ["false"],
        "switch_off": ["false"],
        "on_pattern": "{name}: ON",
        "off_pattern": "{name}: OFF",
    }
    check = checks([node(1, bmc_url="site:n1")], power_commands=commands)["identity_power"]
    assert (check["status"], words in check["found"]) == (status, True), check


def test_a_wrong_password_and_none(bmcs):
    assert "refuses our account" in power(bmcs, system(UUIDS[1]), password="wrong")["found"]
    assert "no account is given" in power(bmcs, system(UUIDS[1]), user="")["found"]


def test_a_node_that_does_not_tell_its_uuid_is_not_proved(bmcs):
    check = power(bmcs, system(UUIDS[1]), smbios_uuid="")
    assert (check["status"], "job_recovery_smbios_uuid_path" in check["found"]) == ("failed", True)


def test_a_bmc_that_is_gone_is_unknown():
    one = node(1, bmc_url="http://127.0.0.1:9/redfish/v1/Systems/n1")
    assert checks([one], bmc_user="u", bmc_password="p")["identity_power"]["status"] == "unknown"


def test_two_bmcs_that_were_swapped(bmcs):
    bmcs.systems.update(n1=system(UUIDS[2]), n2=system(UUIDS[1]), n3=system(UUIDS[3]))
    nodes = [node(number, bmc_url=bmcs.url("n%d" % number)) for number in (1, 2, 3)]
    check = checks(nodes, bmc_user="recovery", bmc_password=PASSWORD)["identity_power"]
    assert check["found"] == "3 BMCs; n[1-2]: its BMC tells another machine's UUID"


def test_the_account_is_nowhere_afterwards(bmcs):
    check = power(bmcs, system(UUIDS[2]))
    assert PASSWORD not in repr(check)
    assert glob.glob(tempfile.gettempdir() + "/job-recovery-*/account") == []
