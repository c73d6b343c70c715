# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What makes each host itself: keys, addresses, identities, copied over the image at its first boot.

Made once an instance and kept, so that host keys and identities are the same after every reboot.
"""

from __future__ import annotations

import os
import secrets
import shutil
from pathlib import Path

from . import command, slurm
from .instance import HEAD, Instance, checkout

_USERS = {"alice": 1000, "bob": 1001, "carol": 1002}
_MUNGE_KEY_BYTES = 1024
_JWT_KEY_BYTES = 32


def prepare(instance: Instance) -> None:
    """Write keys, homes and the seed of every host. A second run changes no key."""
    _private_folder(instance.state / "keys")
    _ssh_key(instance.ssh_key, f"{instance.name} administrator")
    for host in instance.hosts:
        _ssh_key(_host_key(instance, host), f"{instance.name} {host}")
        _write_seed(instance, host)
    _write(instance.known_hosts, known_hosts(instance), 0o644)
    instance.share.mkdir(parents=True, exist_ok=True)
    for user, uid in _USERS.items():
        home = instance.home / user
        if not home.exists():
            home.mkdir(parents=True, mode=0o755)
            os.chown(home, uid, uid)


def known_hosts(instance: Instance) -> str:
    """OpenSSH's known_hosts for all hosts, by name and by address."""
    lines = []
    for host in instance.hosts:
        public = _host_key(instance, host).with_suffix(".pub").read_text(encoding="ascii").split()
        lines.append(f"{instance.address(host)},{host} {public[0]} {public[1]}")
    return "\n".join(lines) + "\n"


def hosts_file(instance: Instance) -> str:
    """/etc/hosts of every host."""
    lines = ["127.0.0.1 localhost", *(f"{instance.address(host)} {host}" for host in instance.hosts)]
    return "\n".join(lines) + "\n"


def secret(instance: Instance, name: str) -> str:
    """A secret of this instance; made up at its first use."""
    file = instance.secret(name)
    if not file.exists():
        _private_folder(file.parent)
        _write(file, secrets.token_hex(16), 0o600)
    return file.read_text(encoding="ascii")


def _write_seed(instance: Instance, host: str) -> None:
    seed = instance.seed(host)
    shutil.copytree(checkout() / "lab" / "files" / "host", seed, dirs_exist_ok=True)
    os.chmod(seed.parent, 0o700)
    host_key = _host_key(instance, host)
    _write(seed / "etc/hosts", hosts_file(instance), 0o644)
    _write(seed / "etc/resolv.conf", "", 0o644)
    _write(seed / "etc/machine-id", instance.machine_id(host) + "\n", 0o444)
    _write(seed / "etc/lab/product_uuid", instance.smbios_uuid(host) + "\n", 0o444)
    _write(seed / "etc/slurm/slurm.conf", slurm.configuration(instance), 0o644)
    _write(seed / "etc/munge/munge.key", _random_key(instance, "munge.key", _MUNGE_KEY_BYTES), 0o400)
    _write(seed / "etc/ssh/ssh_host_ed25519_key", host_key.read_bytes(), 0o600)
    _write(seed / "etc/ssh/ssh_host_ed25519_key.pub", host_key.with_suffix(".pub").read_bytes(), 0o644)
    _write(seed / "root/.ssh/authorized_keys", instance.ssh_key.with_suffix(".pub").read_bytes(), 0o600)
    if host == HEAD:
        database = slurm.database_configuration(secret(instance, "slurmdbd"))
        _write(seed / "etc/slurm/slurmdbd.conf", database, 0o600)
        _write(seed / "etc/lab/mysql_root", secret(instance, "mysql_root"), 0o600)
        jwt_key = _random_key(instance, "jwt_hs256.key", _JWT_KEY_BYTES)
        _write(seed / "var/spool/slurmctld/jwt_hs256.key", jwt_key, 0o600)


def _host_key(instance: Instance, host: str) -> Path:
    return instance.state / "keys" / f"host_{host}"


def _ssh_key(file: Path, comment: str) -> None:
    if file.exists() and file.with_suffix(".pub").exists():
        return
    file.unlink(missing_ok=True)
    command.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(file)])


def _random_key(instance: Instance, name: str, size: int) -> bytes:
    file = instance.state / "keys" / name
    if not file.exists():
        _write(file, secrets.token_bytes(size), 0o600)
    return file.read_bytes()


def _private_folder(path: Path) -> None:
    path.mkdir(parents=True, exist_ok=True)
    os.chmod(path, 0o700)


def _write(file: Path, content: str | bytes, mode: int) -> None:
    """Write a file that is never readable by more than ``mode`` allows, and never half written."""
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(f".{file.name}.partial")
    partial.unlink(missing_ok=True)
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content.encode() if isinstance(content, str) else content)
    os.chmod(partial, mode)
    partial.replace(file)
