# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The BMCs of the lab's nodes: sushy-tools' Redfish emulator over the lab's own power switches.

    python server.py INSTANCE

One server speaks for all nodes (``/redfish/v1/Systems/node1``), as a chassis controller does. It wants HTTPS and basic
authentication, reads a node's power state where it is decided, and goes on answering while nodes are frozen or off.
A file in the state folder (joblab.bmc.behaviour_file) makes it lie; it is read for every request.
"""

from __future__ import annotations

import socket
import ssl
import sys
import threading
import time

import bcrypt
import flask
from joblab import bmc, hostfiles, pki, podman, power
from joblab.errors import LabError
from joblab.instance import NODES, Instance, checkout
from sushy_tools import error
from sushy_tools.emulator import main as emulator
from sushy_tools.emulator.resources.systems import fakedriver
from sushy_tools.emulator.resources.systems.base import AbstractSystemsDriver
from werkzeug.serving import ThreadedWSGIServer, WSGIRequestHandler

_REQUEST_SECONDS = 60
_SHUTDOWN_SECONDS = 20
#: The hash protects a password that lies beside it: cheap, because every request pays for it.
_BCRYPT_ROUNDS = 4


class LabDriver(AbstractSystemsDriver):
    """The lab's nodes as Redfish systems. ``identity`` is a node's name or the UUID that is told for it."""

    instance: Instance
    logger = None

    @classmethod
    def initialize(cls, config, logger, *_args, **_kwargs):
        """Called by the emulator instead of its own driver's."""
        cls.instance = config["LAB_INSTANCE"]
        cls.logger = logger
        return cls

    def __init__(self):
        super().__init__()
        self._locks = {node: threading.Lock() for node in NODES}
        self._boot_devices = {}

    @property
    def driver(self):
        return "<lab>"

    @property
    def systems(self):
        return list(NODES)

    def uuid(self, identity):
        return bmc.told_uuid(self.instance, self._node(identity), self._behaviour())

    def name(self, identity):
        return self._node(identity)

    def get_power_state(self, identity):
        return self._lab(power.power_state, self._node(identity)).value

    def set_power_state(self, identity, state):
        node = self._node(identity)
        behaviour = self._behaviour()
        if node in behaviour.refuse:
            raise error.FishyError(f"The management controller of {node} is busy, try again later", code=503)
        if node in behaviour.ignore:
            self.logger.warning("%s of %s accepted and ignored, as it was told to", state, node)
            return
        action = self._actions().get(state)
        if action is None:
            raise error.NotSupportedError(f"ResetType {state} is not supported", code=400)
        action(node)

    def get_boot_device(self, identity):
        return self._boot_devices.get(self._node(identity), "Hdd")

    def set_boot_device(self, identity, boot_source):
        self._boot_devices[self._node(identity)] = boot_source

    def get_boot_mode(self, identity):  # noqa: ARG002  the emulator names it
        return "UEFI"

    def get_nics(self, identity):  # noqa: ARG002  the emulator names it
        return []

    def _actions(self):
        return {
            "On": self._on,
            "ForceOn": self._on,
            "ForceOff": self._off,
            "ForceRestart": self._restart,
            "GracefulShutdown": self._shut_down,
        }

    def _on(self, node):
        self._switch(node, (power.Power.ON,))

    def _off(self, node):
        self._switch(node, (power.Power.OFF,))

    def _restart(self, node):
        self._switch(node, (power.Power.OFF, power.Power.ON))

    def _switch(self, node, levels):
        """To these levels of power, one after the other; what changed is noted, before it changes."""
        with self._locks[node]:
            for level in levels:
                if self._lab(power.power_state, node) is not level:
                    bmc.record_switch(self.instance, node, level.value)
                self._lab(power.power_on if level is power.Power.ON else power.power_off, node)

    def _shut_down(self, node):
        """Press the button: the operating system goes off if it still listens, later."""
        threading.Thread(target=self._press_button, args=(node,), daemon=True).start()

    def _press_button(self, node):
        try:
            if power.power_state(self.instance, node) is power.Power.OFF or power.frozen(self.instance, node):
                return
            argv = ["stop", f"--time={_SHUTDOWN_SECONDS}", self.instance.container(node)]
            podman.run(self.instance, argv, timeout=_SHUTDOWN_SECONDS + 20)
            self._off(node)
        except (LabError, error.FishyError) as exc:
            self.logger.error("%s did not shut down: %s", node, exc)

    def _node(self, identity):
        if identity in NODES:
            return identity
        told = {bmc.told_uuid(self.instance, node, self._behaviour()): node for node in NODES}
        try:
            return told[identity]
        except KeyError:
            raise error.NotFound(f"System {identity} was not found") from None

    def _behaviour(self):
        return self._lab(lambda instance, _: bmc.behaviour(instance), None)

    def _lab(self, function, node):
        try:
            return function(self.instance, node)
        except LabError as exc:
            self.logger.error("%s", exc)
            raise error.FishyError(str(exc), code=500) from exc


class Server(ThreadedWSGIServer):
    """A thread a connection, also for the TLS handshake: a client that connects and says nothing blocks nobody."""

    daemon_threads = True

    def server_bind(self):
        # the lab's bridge, which has the address, goes when all hosts are off and comes back with the first
        self.socket.setsockopt(socket.SOL_IP, getattr(socket, "IP_FREEBIND", 15), 1)
        super().server_bind()


class Handler(WSGIRequestHandler):
    """Ends connections on which nothing comes."""

    timeout = _REQUEST_SECONDS


def _slow_down():
    delay = bmc.behaviour(flask.current_app.config["LAB_INSTANCE"]).delay_seconds
    time.sleep(delay)


def main() -> None:
    instance = Instance(int(sys.argv[1]), checkout())
    folder = bmc.folder(instance)
    hashed = bcrypt.hashpw(bmc.password(instance).encode(), bcrypt.gensalt(_BCRYPT_ROUNDS)).decode()
    hostfiles.write_private(folder / "htpasswd", f"{bmc.USER}:{hashed}\n")

    # The emulator has no way to name another driver; ours takes the place of its fake one.
    fakedriver.FakeDriver = LabDriver
    emulator.app.configure(extra_config={
        "SUSHY_EMULATOR_FAKE_DRIVER": True,
        "SUSHY_EMULATOR_AUTH_FILE": str(folder / "htpasswd"),
        "SUSHY_EMULATOR_STATE_DIR": str(folder),
        "LAB_INSTANCE": instance,
    })
    emulator.app.before_request(_slow_down)

    server = Server(instance.gateway, bmc.PORT, emulator.app, Handler)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    keys = pki.path(instance)
    context.load_cert_chain(keys / "bmc.crt", keys / "bmc.key")
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    server.serve_forever()


if __name__ == "__main__":
    main()
