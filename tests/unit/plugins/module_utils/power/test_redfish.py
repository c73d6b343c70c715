# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Power against BMCs that err, drip and lie: small HTTP servers."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Callable, Iterator, Optional

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import (
    Absent,
    BadInput,
    Conflict,
    Forbidden,
    RecoveryError,
    TimedOut,
    Unreachable,
    Unreadable,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.power.redfish import (
    OFF,
    ON,
    UNKNOWN,
    Power,
    PowerState,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import PowerSettings

UUID = "4c4c4544-0039-5910-804e-b6c04f4d3733"
PASSWORD = "correct-horse-battery"
PATH = "/redfish/v1/Systems/1"


class Bmc(ThreadingHTTPServer):
    """A BMC that behaves, until a test replaces one of its answers."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.state: Any = ON
        self.uuid: Any = UUID
        self.target = PATH + "/Actions/ComputerSystem.Reset"
        self.allowed: Optional[list] = ["On", "ForceOff"]
        self.resets: list[tuple[str, dict]] = []
        self.on_get: Optional[Callable[[Any], bool]] = None
        self.on_post: Optional[Callable[[Any, str], bool]] = None

    @property
    def url(self) -> str:
        return "http://127.0.0.1:%d%s" % (self.server_address[1], PATH)


class _Handler(BaseHTTPRequestHandler):
    server: Bmc

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the base class names it so)
        pass

    def answer(self, status: int, body: bytes = b"", headers: Optional[dict] = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        if self.server.on_get is not None and self.server.on_get(self):
            return
        reset: dict[str, Any] = {"target": self.server.target}
        if self.server.allowed is not None:
            reset["ResetType@Redfish.AllowableValues"] = self.server.allowed
        system = {
            "UUID": self.server.uuid,
            "PowerState": self.server.state,
            "Actions": {"#ComputerSystem.Reset": reset},
        }
        self.answer(200, json.dumps(system).encode(), {"ETag": 'W/"7"'})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.resets.append((body["ResetType"], dict(self.headers)))
        if self.server.on_post is not None and self.server.on_post(self, body["ResetType"]):
            return
        self.server.state = {"ForceOff": OFF, "On": ON}[body["ResetType"]]
        self.answer(204)


@pytest.fixture(name="bmc")
def _bmc() -> Iterator[Bmc]:
    server = Bmc()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture(name="power")
def _power(tmp_path: Path) -> Power:
    credentials = tmp_path / "credentials"
    credentials.write_text("admin:%s\n" % PASSWORD, encoding="utf-8")
    return Power(PowerSettings(credentials_file=str(credentials), timeout=1.0))


def get_answers(status: int, body: bytes = b"", headers: Optional[dict] = None) -> Callable[[Any], bool]:
    def answer(handler: Any) -> bool:
        handler.answer(status, body, headers)
        return True

    return answer


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (get_answers(401, b'{"error": {}}'), Forbidden),
        (get_answers(403), Forbidden),
        (get_answers(404), Absent),
        (get_answers(503), Unreachable),
        (get_answers(302, b"", {"Location": "http://127.0.0.1:1/"}), Unreadable),
        (get_answers(200, b"<html>login</html>"), Unreadable),
        (get_answers(200, b"[]"), Unreadable),
        (get_answers(200, b'{"Members": []}'), Unreadable),
        (get_answers(200, b" " * 1100000), Unreadable),
        (get_answers(200, b"[" * 100000), Unreadable),
    ],
    ids=["401", "403", "404", "503", "redirect", "html", "list", "collection", "endless", "deep"],
)
def test_odd_answers_are_errors_without_secrets(bmc: Bmc, power: Power, answer: Any, error: type) -> None:
    bmc.on_get = answer
    with pytest.raises(error) as caught:
        power.read(bmc.url)
    assert PASSWORD not in repr(caught.value) + str(caught.value.__cause__) + str(caught.value.fields)


def test_no_http_is_unreadable(bmc: Bmc, power: Power) -> None:
    def garbage(handler: Any) -> bool:
        handler.wfile.write(b"\x00\x01SSH-2.0-dropbear\r\n\r\n")
        return True

    bmc.on_get = garbage
    with pytest.raises(Unreadable):
        power.read(bmc.url)


@pytest.mark.parametrize("where", ["before", "head", "body"])
def test_a_dripping_bmc_is_left_at_the_deadline(bmc: Bmc, power: Power, where: str) -> None:
    def drip(handler: Any) -> bool:
        if where == "body":
            handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        if where == "head":
            handler.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
        for _byte in range(100):
            time.sleep(0.05)
            if where != "before":
                try:
                    handler.wfile.write(b" ")
                    handler.wfile.flush()
                except OSError:
                    break
        return True

    bmc.on_get = drip
    started = time.monotonic()
    with pytest.raises(TimedOut):
        power.read(bmc.url, 0.4)
    assert time.monotonic() - started < 1.5


def test_nobody_there_is_unreachable(power: Power) -> None:
    with pytest.raises(Unreachable):
        power.read("http://127.0.0.1:1" + PATH)


@pytest.mark.parametrize(
    "url",
    ["", "node7", "ftp://bmc/redfish", "https://bmc", "https://admin:pw@bmc/redfish/v1/Systems/1", "http://[bad/x"],
)
def test_a_bad_address_is_bad_input(power: Power, url: str) -> None:
    with pytest.raises(BadInput):
        power.read(url)


@pytest.mark.parametrize("content", ["", "only-a-user", "a:b\nc:d"])
def test_bad_credentials_file(tmp_path: Path, bmc: Bmc, content: str) -> None:
    path = tmp_path / "bad"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(Unreadable, match="not one line"):
        Power(PowerSettings(credentials_file=str(path))).read(bmc.url)


@pytest.mark.parametrize(
    ("told", "recorded", "same"),
    [
        (UUID, UUID.upper(), True),
        (UUID.replace("-", ""), " " + UUID + "\n", True),
        ("44454c4c-3900-1059-804e-b6c04f4d3733", UUID, True),  # the first three fields in the other byte order
        ("4c4c4544-0039-5910-804e-b6c04f4d3734", UUID, False),
        ("", "", False),
        (None, UUID, False),
        ("not settable", "not settable", False),
        ("03000200-0400-0500-0006-000700080009", "03000200-0400-0500-0006-000700080009", False),
    ],
)
def test_power_is_touched_only_with_the_nodes_uuid(
    bmc: Bmc, power: Power, told: Any, recorded: str, same: bool
) -> None:
    bmc.uuid = told
    if same:
        assert power.request_level(bmc.url, OFF, recorded, 2).state == ON
        assert [reset for reset, _headers in bmc.resets] == ["ForceOff"]
    else:
        with pytest.raises(Conflict):
            power.request_level(bmc.url, OFF, recorded, 2)
        assert not bmc.resets


def test_a_level_that_is_reached_is_not_asked_for(bmc: Bmc, power: Power) -> None:
    bmc.state = OFF
    power.request_level(bmc.url, OFF, UUID, 2)
    assert not bmc.resets


def test_already_off_said_as_an_error(bmc: Bmc, power: Power) -> None:
    def already(handler: Any, _reset: str) -> bool:
        bmc.state = OFF  # it went off between our look and our request
        handler.answer(409, b'{"error": {"code": "SYS448", "message": "Server is already powered OFF."}}')
        return True

    bmc.on_post = already
    assert power.request_level(bmc.url, OFF, UUID, 2).state == ON


@pytest.mark.parametrize(("status", "error"), [(400, Conflict), (409, Conflict), (401, Forbidden), (500, Unreachable)])
def test_a_refused_reset(bmc: Bmc, power: Power, status: int, error: type) -> None:
    bmc.on_post = lambda handler, _reset: handler.answer(status) or True
    with pytest.raises(error):
        power.request_level(bmc.url, OFF, UUID, 2)


def test_a_bmc_that_wants_its_etag_gets_it(bmc: Bmc, power: Power) -> None:
    def strict(handler: Any, _reset: str) -> bool:
        if handler.headers.get("If-Match") == 'W/"7"':
            return False
        handler.answer(428)
        return True

    bmc.on_post = strict
    power.request_level(bmc.url, OFF, UUID, 2)
    assert len(bmc.resets) == 2
    assert bmc.state == OFF


@pytest.mark.parametrize("target", ["http://evil.example/reset", "//evil.example/reset", "reset"])
def test_a_reset_elsewhere_is_refused(bmc: Bmc, power: Power, target: str) -> None:
    bmc.target = target
    with pytest.raises(Unreadable):
        power.request_level(bmc.url, OFF, UUID, 2)


def test_a_bmc_without_force_off_is_refused(bmc: Bmc, power: Power) -> None:
    bmc.allowed = ["On", "GracefulShutdown"]
    with pytest.raises(Absent, match="ForceOff"):
        power.request_level(bmc.url, OFF, UUID, 2)
    assert not bmc.resets


def test_off_that_never_comes_is_not_off(bmc: Bmc, power: Power) -> None:
    bmc.on_post = lambda handler, _reset: handler.answer(204) or True
    power.request_level(bmc.url, OFF, UUID, 2)
    started = time.monotonic()
    assert power.await_level(bmc.url, (OFF,), UUID, 0.8).state == ON
    assert time.monotonic() - started < 2


def test_off_that_comes_late_through_a_busy_bmc(bmc: Bmc, power: Power) -> None:
    looks: list[float] = []

    def busy(handler: Any) -> bool:
        looks.append(time.monotonic())
        bmc.state = OFF if len(looks) > 3 else "PoweringOff"
        return len(looks) < 3 and (handler.answer(503) or True)

    bmc.on_get = busy
    assert power.await_level(bmc.url, (OFF,), UUID, 5).state == OFF


def test_the_bmc_of_another_machine_meanwhile(bmc: Bmc, power: Power) -> None:
    bmc.uuid = "4c4c4544-0039-5910-804e-000000000000"
    with pytest.raises(Conflict):
        power.await_level(bmc.url, (OFF,), UUID, 2)


@pytest.mark.parametrize("state", [None, "Paused", 7])
def test_other_states_are_unknown(bmc: Bmc, power: Power, state: Any) -> None:
    bmc.state = state
    assert power.read(bmc.url).state == UNKNOWN


def test_read_many_keeps_troubles_apart(bmc: Bmc, power: Power) -> None:
    answers = power.read_many([bmc.url, "http://127.0.0.1:1" + PATH])
    assert isinstance(answers[bmc.url], PowerState)
    assert isinstance(answers["http://127.0.0.1:1" + PATH], RecoveryError)


def test_proxies_of_the_environment_are_not_used(bmc: Bmc, power: Power, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert power.read(bmc.url).state == ON
