# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Loki's API through its Ingress, with the site's credentials: one request at a time, each with its deadline.

What an answer means is judged in `answers`, which is pure. Certificates are always verified.
"""

from __future__ import annotations

from typing import Any, Mapping, Optional, Sequence
from urllib.parse import urlencode

from ansible_collections.mission_control.job_recovery.plugins.module_utils import web
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import BadInput, Unreadable
from ansible_collections.mission_control.job_recovery.plugins.module_utils.loki import answers
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import LokiSettings

PUSH = "/loki/api/v1/push"
QUERY_RANGE = "/loki/api/v1/query_range"
_ENDING = "/loki/api/v1"
_MAX_ANSWER = 16 * 1048576


class LokiClient:
    """One Loki. Cheap to make; the credentials are read for each request, so that a changed file is enough.

    Raises:
        BadInput: an address or a tenant that HTTP cannot carry. Unreadable: the certificate authority's file.
    """

    def __init__(self, settings: LokiSettings) -> None:
        self._settings = settings
        if not settings.tenant.isprintable():
            raise BadInput("Loki: the tenant holds a control character")
        self._site = web.site(
            "Loki",
            {
                "url": settings.url,
                "address": settings.address,
                "ca_file": settings.ca_file or None,
                "validate_certs": True,
                "timeout": settings.timeout,
            },
            _ENDING,
        )

    def push(self, streams: Sequence[Mapping[str, Any]]) -> answers.Taken:
        """Push streams (`[{"stream": labels, "values": [[nanoseconds as text, line]]}]`).

        Raises:
            answers.Busy: not now. RecoveryError: no answer, or one that is none of Loki's.
        """
        return answers.of_push(self._ask("POST", PUSH, {"streams": list(streams)}))

    def query_range(self, query: str, start: int, end: int, limit: int) -> list[answers.Entry]:
        """The lines of a LogQL query from `start` on and before `end` (nanoseconds), the earliest first.

        Raises:
            answers.Refused: Loki says that the query cannot be answered. power.http.TooLong: ask for fewer lines.
            answers.Busy: not now. RecoveryError: no answer, or one that is none of Loki's.
        """
        return self._lines(query, start, end, limit, "forward")

    def last_lines(self, query: str, start: int, end: int, limit: int) -> list[answers.Entry]:
        """The same of the last of these lines, the earliest first. Raises as `query_range`."""
        return self._lines(query, start, end, limit, "backward")

    def _lines(self, query: str, start: int, end: int, limit: int, direction: str) -> list[answers.Entry]:
        asked = {"query": query, "start": start, "end": end, "limit": limit, "direction": direction}
        return answers.of_query(self._ask("GET", "%s?%s" % (QUERY_RANGE, urlencode(asked)), None))

    def _ask(self, method: str, path: str, body: Optional[Mapping[str, Any]]) -> Any:
        headers = {"X-Scope-OrgID": self._settings.tenant} if self._settings.tenant else None
        return self._site.ask(method, path, self._account(), headers, body, _MAX_ANSWER)

    def _account(self) -> Optional[web.Account]:
        path = self._settings.credentials_file
        if not path:
            return None
        try:
            with open(path, encoding="utf-8") as handle:
                user, colon, password = handle.read().rstrip("\r\n").partition(":")
        except (OSError, UnicodeDecodeError) as exc:
            raise Unreadable(
                "Loki: its credentials in %s cannot be read (%s)" % (path, type(exc).__name__), "run site.yml again"
            ) from None
        if not colon:
            raise Unreadable("Loki: %s does not hold user:password" % path, "run site.yml again")
        return web.account("Loki", user, password)
