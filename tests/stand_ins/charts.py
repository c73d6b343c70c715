# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A chart repository over HTTP: `index.yaml` and archives, as any web server would serve a folder of them."""

from __future__ import annotations

import hashlib
import json

from .serving import Answer, Certificate, Request, StandIn, as_text


class ChartRepository(StandIn):
    """A repository below /charts.

    Attributes:
        address: what a site gives as its address.
        archives: by name of file.
        head: whether the server knows HEAD.
    """

    def __init__(self, certificate: Certificate | None = None) -> None:
        super().__init__(certificate)
        self.address = self.url + "/charts"
        self.archives: dict[str, bytes] = {}
        self.head = True
        self.entries: dict[str, list[dict]] = {}

    def put(self, name: str, version: str, archive: bytes, url: str = "") -> None:
        """Keep an archive; `url` is where the index says that it lies, by default beside it."""
        file = f"{name}-{version}.tgz"
        self.archives[file] = archive
        entry = {
            "apiVersion": "v2",
            "name": name,
            "version": version,
            "digest": hashlib.sha256(archive).hexdigest(),
            "urls": [url or file],
        }
        self.entries.setdefault(name, []).append(entry)

    def answer(self, request: Request) -> Answer:
        if request.method == "HEAD" and not self.head:
            return as_text(405, "")
        if request.method not in ("GET", "HEAD"):
            return as_text(405, "Method Not Allowed\n")
        if request.path == "/charts/index.yaml":
            # JSON is YAML, too
            return Answer(200, json.dumps({"apiVersion": "v1", "entries": self.entries}).encode())
        archive = self.archives.get(request.path.removeprefix("/charts/"))
        return as_text(404, "404 page not found\n") if archive is None else Answer(200, archive)
