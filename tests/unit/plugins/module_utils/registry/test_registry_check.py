# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module registry_check against a small registry."""

from __future__ import annotations

import json
import socket
import threading
import time

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks import registry as registry_check
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import BadInput
from ansible_collections.mission_control.job_recovery.plugins.module_utils.registry.together import ask_all

USER = "$oauthtoken"
KEY = "nvapi-" + "k" * 64


def run(**given):
    spec = registry_check.SPEC["argument_spec"]
    params = {name: option.get("default") for name, option in spec.items()}
    params.update(given)
    for name in ("registries", "repositories", "charts"):
        options = spec[name]["options"]
        defaults = {key: option.get("default") for key, option in options.items()}
        params[name] = [{**defaults, **one} for one in params[name]]
    return registry_check.run(params, False)


def site(registry, username=USER, password=KEY, **more):
    name = registry if isinstance(registry, str) else registry.name
    return {"registry": name, "username": username, "password": password, "plain_http": True, **more}


def checks(result):
    return {check["id"]: check for check in result["checks"]}


def answers(result):
    return [one["answer"] for one in result["results"]]


def test_all_is_there(registry):
    result = run(
        registries=[site(registry)],
        images=[registry.name + "/lab/busybox:1", registry.name + "/lab/multi:1"],
        platforms=["linux/amd64"],
        charts=[{"chart": "oci://%s/charts/access" % registry.name, "version": "0.1.0"}],
    )
    assert {name: (one["status"], one["found"], one["hint"]) for name, one in checks(result).items()} == {
        "registry_credentials": ("passed", "1 of 1", ""),
        "registry_access": ("passed", "1 of 1", ""),
        "registry_images": ("passed", "2 of 2", ""),
        "registry_charts": ("passed", "1 of 1", ""),
    }
    assert answers(result) == ["accepted", "present", "present", "present"]
    assert all(one["digest"].startswith("sha256:") for one in result["results"][1:])
    assert result["changed"] is False
    assert KEY not in json.dumps(result)


def test_nothing_to_ask():
    assert run() == {"changed": False, "checks": [], "results": []}


def test_wrong_credentials_are_tried_once(registry):
    images = ["%s/lab/busybox:%d" % (registry.name, number) for number in range(5)]
    result = run(registries=[site(registry, password="nvapi-" + "x" * 64)], images=images)
    assert set(answers(result)) == {"bad_credentials"}
    assert {name: one["status"] for name, one in checks(result).items()} == {
        "registry_credentials": "passed",
        "registry_access": "failed",
        "registry_images": "failed",
    }
    assert len([sent for sent in registry.authorizations if sent]) == 1
    assert "valid there" in checks(result)["registry_access"]["hint"]


@pytest.mark.parametrize("password", [KEY + "\n", "'%s'" % KEY, ""])
def test_credentials_that_cannot_be_right_are_not_tried(password):
    result = run(registries=[{"registry": "nvcr.io", "username": USER, "password": password}], deadline=5)
    assert checks(result)["registry_credentials"]["status"] == "failed"
    assert answers(result) == ["bad_credentials"]
    assert "not asked" in result["results"][0]["why"]


def test_nvidias_user_is_the_default():
    result = run(registries=[{"registry": "nvcr.io", "password": KEY + "\n"}], deadline=5)
    assert "user" not in checks(result)["registry_credentials"]["found"]


def test_missing_rights_and_missing_images(registry):
    names = ["public:1", "public:2", "lab/busybox:1"]
    result = run(
        registries=[site(registry, "guest", "guest's password")],
        images=["%s/%s" % (registry.name, name) for name in names],
    )
    assert answers(result) == ["accepted", "present", "absent", "no_permission"]
    check = checks(result)["registry_images"]
    assert check["status"] == "failed"
    assert check["found"].startswith("1 of 3: not %s/public:2: the repository is there" % registry.name)
    assert "right to pull" in check["hint"]


def test_a_registry_that_is_away_is_unknown_and_asked_once():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        name = "127.0.0.1:%d" % unused.getsockname()[1]
    result = run(registries=[site(name)], images=[name + "/a:1", name + "/b:1"])
    assert answers(result) == ["unreachable"] * 3
    assert checks(result)["registry_images"]["status"] == "unknown"
    assert "not asked for" in result["results"][1]["why"]


def test_a_registry_that_does_not_speak_tls(registry):
    result = run(registries=[site(registry, plain_http=False)])
    assert answers(result) == ["untrusted"]
    assert checks(result)["registry_access"]["status"] == "failed"


def test_without_credentials(registry):
    registry.mode = "open"
    given = {"registry": registry.name, "plain_http": True}
    result = run(registries=[given], images=[registry.name + "/lab/busybox:1"])
    assert answers(result) == ["accepted", "present"]
    assert "registry_credentials" not in checks(result)
    registry.mode = "token"
    result = run(registries=[given], images=[registry.name + "/lab/busybox:1"])
    assert answers(result) == ["accepted", "bad_credentials"]
    assert "none are given" in result["results"][1]["why"]


def test_the_closest_credentials_are_used(registry):
    result = run(
        registries=[site(registry, "guest", "guest's password"), site(registry.name + "/lab")],
        images=[registry.name + "/lab/busybox:1", registry.name + "/public:1"],
    )
    assert answers(result) == ["accepted", "accepted", "present", "present"]


def test_many_are_told_in_short(registry):
    images = ["%s/lab/nothing%d:1" % (registry.name, number) for number in range(30)]
    result = run(registries=[site(registry)], images=images)
    assert checks(result)["registry_images"]["found"].endswith("; and 25 more")
    assert len(result["results"]) == 31


def test_all_of_it_ends(registry):
    def drip(handler):
        for _byte in range(50):  # headers, byte by byte: each is in time
            try:
                handler.wfile.write(b"H")
            except OSError:
                return True
            time.sleep(0.1)
        return True

    registry.differs = drip
    begun = time.monotonic()
    result = run(registries=[site(registry)], images=[registry.name + "/lab/busybox:1"], deadline=1)
    assert time.monotonic() - begun < 3
    assert answers(result) == ["timed_out", "timed_out"]
    assert {check["status"] for check in result["checks"]} == {"passed", "unknown"}


def test_what_is_unusual_is_a_warning():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        name = "127.0.0.1:%d" % unused.getsockname()[1]
    result = run(registries=[site(name, "robot", "'quoted'")])
    assert checks(result)["registry_credentials"]["status"] == "warning"


@pytest.mark.parametrize(
    "given",
    [
        {"registries": [{"registry": "https://nvcr.io/v2/"}]},
        {"registries": [{"registry": "nvcr.io"}, {"registry": "nvcr.io"}]},
        {"registries": [{"registry": "*.example.org"}]},
        {"registries": [{"registry": "nvcr.io", "ca_file": "/nowhere/ca.crt"}]},
        {"images": ["https://nvcr.io/x"]},
        {"charts": [{"chart": "nvcr.io/x"}]},
    ],
)
def test_wrong_use(given):
    with pytest.raises(BadInput):
        run(**given)


def test_questions_are_asked_side_by_side_and_answered_in_order():
    together = threading.Barrier(4, timeout=5)

    def ask(number):
        together.wait()
        time.sleep(0.01 * (4 - number))
        return number * 2

    assert ask_all([1, 2, 3, 4], ask, 10) == [2, 4, 6, 8]
    assert ask_all([], ask, 10) == []


def test_a_defect_is_shown():
    with pytest.raises(ZeroDivisionError):
        ask_all([0], lambda number: 1 // number, 5)
