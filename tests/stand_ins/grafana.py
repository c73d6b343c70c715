# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A stand-in for Grafana: its login page, its health, its administrator's password, and its lock after wrong ones."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

from .serving import Answer, Certificate, Request, StandIn, as_json, as_page, as_text

_TRIES, _WINDOW = 5, 300.0  # Grafana locks a user out after so many wrong passwords in so many seconds
_WRONG = {"message": "Invalid username or password", "messageId": "password-auth.failed", "statusCode": 401}


class GrafanaStandIn(StandIn):
    """Grafana under a path of its own (`serve_from_sub_path`), with one user.

    Attributes:
        password: the administrator's.
        failures: when wrong passwords were tried, epoch seconds.
        basic: whether it takes user and password by its API (`auth.basic`).
        database: what /api/health says of it.
    """

    def __init__(
        self,
        password: str,
        certificate: Certificate | None = None,
        path: str = "/grafana",
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(certificate)
        self.user, self.password, self.path = "admin", password, path
        self.basic, self.database = True, "ok"
        self.failures: list[float] = []
        self._clock = clock
        self.url += path

    def answer(self, request: Request) -> Answer:
        if not request.path.startswith(self.path + "/"):
            return as_text(404, "default backend - 404")
        ways = {
            ("GET", "/login"): self._login,
            ("GET", "/api/health"): self._health,
            ("GET", "/api/user"): self._user,
            ("PUT", "/api/user/password"): self._change,
        }
        way = ways.get((request.method, request.path[len(self.path) :]))
        return way(request) if way else as_json(404, {"message": "Not found"})

    def _login(self, _request: Request) -> Answer:
        script = "<script>window.grafanaBootData = {};</script>"
        return as_page(200, f"<!DOCTYPE html><html><head><title>Grafana</title></head><body>{script}</body></html>")

    def _health(self, _request: Request) -> Answer:
        return as_json(200 if self.database == "ok" else 503, {"database": self.database, "version": "13.0.2"})

    def _user(self, request: Request) -> Answer:
        refused = self._refused(request)
        return refused or as_json(200, {"id": 1, "login": self.user, "isGrafanaAdmin": True})

    def _change(self, request: Request) -> Answer:
        refused = self._refused(request)
        if refused is not None:
            return refused
        wish = json.loads(request.body)
        if wish.get("oldPassword") != self.password:
            return as_json(401, {"message": "invalid old password"})
        if len(wish.get("newPassword", "")) < 4:
            return as_json(400, {"message": "New password is too short"})
        if wish.get("confirmNew") != wish["newPassword"]:
            return as_json(400, {"message": "Passwords do not match"})
        self.password = wish["newPassword"]
        return as_json(200, {"message": "User password changed"})

    def _refused(self, request: Request) -> Answer | None:
        if request.account is None or not self.basic:
            return as_json(401, {"message": "Unauthorized", "messageId": "auth.unauthorized", "statusCode": 401})
        now = self._clock()
        locked = sum(now - at < _WINDOW for at in self.failures) >= _TRIES
        if not locked and request.account == (self.user, self.password):
            return None
        self.failures.append(now)
        return as_json(401, _WRONG)
