# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a kubelet serves of containers' logs, over HTTPS on loopback, for a real API server that asks it."""

from __future__ import annotations

import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


class Kubelet:
    """Serves one log for every container, while it is entered.

    Args:
        folder: has a certificate of the name `tls/apiserver`, which is as good as any: the API server verifies
            kubelets only where it is told their authority.

    Attributes:
        where: the node's status that leads the API server here.
        asked: the paths it was asked for, in order.
    """

    def __init__(self, folder: Path, log: bytes = b"step 1\nSegmentation fault (core dumped)\n") -> None:
        self.asked: list[str] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"kubelet": self}))
        self._server.daemon_threads = True
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "tls" / "apiserver.crt", folder / "tls" / "apiserver.key")
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.log = log
        self.where: dict[str, Any] = {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self._server.server_address[1]}},
        }

    def __enter__(self) -> Kubelet:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_what: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    kubelet: Kubelet

    def do_GET(self) -> None:
        self.kubelet.asked.append(self.path)
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.end_headers()
        self.wfile.write(self.kubelet.log)

    def log_message(self, *_args: object) -> None:
        """Nothing."""
