# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bringing an instance up and down. Both can be interrupted at any point and run again."""

from __future__ import annotations

import contextlib
import fcntl
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from . import (
    binaries,
    bmc,
    cache,
    command,
    faults,
    host,
    image,
    inventory,
    kubernetes,
    limits,
    podman,
    power,
    processes,
    progress,
    seed,
    slurm,
    ssh,
    status,
)
from .errors import LabError
from .instance import Instance

_BOOT_SECONDS = 60


@contextlib.contextmanager
def exclusive(instance: Instance) -> Iterator[None]:
    """One up or down of an instance at a time. Raises LabError if another one is at work."""
    folder = instance.state.parent
    folder.mkdir(exist_ok=True)
    (folder / ".gitignore").write_text("*\n", encoding="ascii")
    with (folder / f"{instance.number}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            raise LabError(f"Another lab/up or lab/down of instance {instance.number} is at work here") from exc
        yield


def up(instance: Instance, *, with_kubernetes: bool, settings: Sequence[str] = (), verify_cache: bool = False) -> None:
    """Bring the instance up, or complete what is missing of it, or verify that nothing is."""
    host.check(instance)
    changes = slurm.parse_settings(settings)
    with exclusive(instance):
        processes.check_owner(instance)
        host.install_packages()
        limits.raise_limits()
        artifact = _artifacts(with_kubernetes, verify_cache)
        if changes:
            slurm.set_configuration(instance, changes)
        fresh = not _intact(instance)
        if fresh:
            _tear_down(instance)
            _start(instance, artifact, with_kubernetes)
        _switch_on(instance)
        if _complete(instance, with_kubernetes):
            _verify(instance)
        else:
            _install(instance, with_kubernetes)
            status.mark_installed(instance, ["slurm", *(["kubernetes"] if with_kubernetes else [])])
        if changes and not fresh:
            slurm.push_configuration(instance)
    progress.note(f"Lab instance {instance.number} is up. Inventory: {instance.inventory}")


def down(instance: Instance) -> None:
    """End and remove all of the instance; also what is left when it was killed from outside."""
    with exclusive(instance):
        processes.check_owner(instance)
        with progress.step(f"Removing lab instance {instance.number}"):
            _tear_down(instance)
            if instance.state.exists():
                shutil.rmtree(instance.state)
            limits.restore_limits()


def _artifacts(with_kubernetes: bool, verify_cache: bool) -> cache.Artifact:
    """All that comes from the cache, made side by side where it is missing; returns the image."""
    with ThreadPoolExecutor() as pool:
        made = [pool.submit(image.ensure)]
        if with_kubernetes:
            made.append(pool.submit(binaries.ensure))
        results = [future.result() for future in made]
    if verify_cache:
        with progress.step("Verifying the checksums of the cache"):
            cache.verify_all()
    return results[0]


def _intact(instance: Instance) -> bool:
    """Whether all containers are there, with the processes that watch over them."""
    if processes.namespace_pid(instance) is None or not (instance.state / "containers.json").exists():
        return False
    try:
        present = podman.containers(instance)
    except LabError as exc:
        progress.note(f"What is left of an earlier lab does not answer and is cleared: {exc}")
        return False
    lost = [name for name, item in present.items() if item["running"] and not _alive(instance, item["monitor"])]
    if lost:
        progress.note(f"Without their monitor, and therefore made again: {', '.join(lost)}")
    return set(present) == set(instance.hosts) and not lost


def _alive(instance: Instance, pid: object) -> bool:
    return pid in processes.pids(processes.cgroup(instance) / "podman")


def _start(instance: Instance, artifact: cache.Artifact, with_kubernetes: bool) -> None:
    with progress.step("Keys, addresses and configuration"):
        seed.prepare(instance)
        if with_kubernetes:
            kubernetes.seed(instance)
        inventory.write(instance)
        podman.configure(instance, artifact)
        processes.open_namespace(instance)
    with progress.step(f"Starting {len(instance.hosts)} hosts"):
        podman.create(instance, instance.hosts)
        podman.record_ids(instance)


def _switch_on(instance: Instance) -> None:
    """Every host on and reachable, whatever faults were made on it."""
    processes.open_namespace(instance)
    for name in instance.hosts:
        power.thaw(instance, name)
        if power.power_state(instance, name) is power.Power.OFF:
            progress.note(f"{name} was off")
            power.power_on(instance, name)
    with progress.step("Hosts answer by SSH"):
        _all(
            lambda name: command.wait_for(
                f"{name} answers by SSH", lambda: ssh.answers(instance, name), timeout=_BOOT_SECONDS
            ),
            instance.hosts,
        )


def _install(instance: Instance, with_kubernetes: bool) -> None:
    works: list[Callable[[], None]] = [lambda: _install_slurm(instance), lambda: _start_bmc(instance)]
    if with_kubernetes:
        works.append(lambda: kubernetes.install(instance))
    _all(lambda work: work(), works)


def _verify(instance: Instance) -> None:
    """Tell what is not as it should be; what somebody broke on purpose stays broken."""
    report = status.report(instance)
    progress.note("Everything was up already" if report.healthy else "It was up already, but not all is well:")
    for line in report.wrong:
        progress.note(f"  {line}")


def _install_slurm(instance: Instance) -> None:
    with progress.step("Slurm: accounts"):
        slurm.set_up_accounts(instance)
    with progress.step("Slurm: all nodes idle"):
        slurm.wait_idle(instance)


def _start_bmc(instance: Instance) -> None:
    with progress.step("BMC"):
        bmc.start(instance)


def _all(work: Callable, items: Sequence) -> None:
    """Do work on all items side by side; raises the first error after all have ended."""
    with ThreadPoolExecutor(max_workers=max(len(items), 1)) as pool:
        list(pool.map(work, items))


def _complete(instance: Instance, with_kubernetes: bool) -> bool:
    wanted = {"slurm", *(["kubernetes"] if with_kubernetes else [])}
    return wanted <= set(status.installed(instance)) and bmc.running(instance)


def _tear_down(instance: Instance) -> None:
    """Kill the instance's processes, with which its namespaces go, and remove what belongs to this run of it."""
    processes.kill_group(processes.cgroup(instance))
    faults.forget_losses(instance)
    if command.run(["ip", "link", "show", "dev", instance.name], check=False).returncode == 0:
        command.run(["ip", "link", "delete", "dev", instance.name])
    for name in ("podman", "volumes", "power_off"):
        if (instance.state / name).exists():
            shutil.rmtree(instance.state / name)
    for name in ("containers.json", "installed.json"):
        (instance.state / name).unlink(missing_ok=True)
