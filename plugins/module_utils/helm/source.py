# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a chart comes from, and how it gets here: as an archive or a folder whose digest is known and has been checked.

Whatever its origin, a chart is installed from that local copy, so that what was checked is what is installed, and no
account is there any more when the installation, which may take long, begins.
"""

from __future__ import annotations

import errno
import glob
import hashlib
import os
import re
import tarfile
from dataclasses import dataclass
from typing import Any, Mapping, Optional
from urllib.parse import urlsplit

try:
    import yaml
except ImportError:  # said clearly at use
    yaml = None

from ansible_collections.mission_control.job_recovery.plugins.module_utils import archive, yaml_text
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
from ansible_collections.mission_control.job_recovery.plugins.module_utils.helm.account import Account, docker_config
from ansible_collections.mission_control.job_recovery.plugins.module_utils.helm.command import (
    Ended,
    Helm,
    PrivateFolder,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.reading import printable

OCI = "oci"
REPOSITORY = "repository"
LOCAL = "local"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}\Z")
_OCI = re.compile(r"oci://(?P<host>[A-Za-z0-9.\[\]:-]+)/(?P<path>[a-z0-9][a-z0-9._/-]*)\Z")
_VERSION = re.compile(r"v?\d+\.\d+\.\d+(?:[-+][0-9A-Za-z.+-]+)?\Z")
_CONSTRAINT = re.compile(r"[0-9A-Za-z^~<>=|*.,+ -]{1,100}\Z")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}\Z")
_PULLED = re.compile(r"^Digest:\s*(sha256:[0-9a-f]{64})\s*$", re.MULTILINE)
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_ALIAS = "repository"  # what helm calls the one repository that it knows
_CHUNK = 1 << 20


@dataclass(frozen=True)
class Source:
    """Where a chart comes from.

    Attributes:
        kind: `oci`, `repository` (HTTP) or `local`.
        chart: the oci:// address, the name in the repository, or the absolute path.
        repository: URL of the HTTP repository.
        host: HOST[:PORT] that is asked; empty for `local`.
        version: exact, a constraint, or empty for the newest.
        digest: `sha256:...` that it must have, or empty.
        ca_file, plain_http, keyring: how it is asked, and with which public keys its provenance is proved.
    """

    kind: str
    chart: str
    repository: str = ""
    host: str = ""
    version: str = ""
    digest: str = ""
    ca_file: str = ""
    plain_http: bool = False
    keyring: str = ""

    @property
    def exact(self) -> bool:
        """Whether `version` names one version."""
        return bool(_VERSION.match(self.version))

    @property
    def words(self) -> str:
        """The source for a message."""
        where = "%s of %s" % (self.chart, self.repository) if self.kind == REPOSITORY else self.chart
        return "chart %s%s" % (where, " " + self.version if self.version else "")


@dataclass(frozen=True)
class Chart:
    """A chart that is here and was checked.

    Attributes:
        path: its archive or folder.
        name, version: as its Chart.yaml says.
        digests: that of the archive (or of the folder's content), and that of the manifest in an OCI registry.
    """

    path: str
    name: str
    version: str
    digests: frozenset[str]


def parse(params: Mapping[str, Any]) -> Source:
    """The source that a module's options name. Raises `BadInput`."""
    chart, repository = params["chart"] or "", params["repository"] or ""
    common = {
        "version": params["version"] or "",
        "digest": params["digest"] or "",
        "ca_file": params["ca_file"] or "",
        "plain_http": params["plain_http"],
        "keyring": params["keyring"] or "",
    }
    if common["version"] and not _CONSTRAINT.match(common["version"]):
        raise BadInput("version %r is none" % printable(common["version"]), "give one such as 1.2.3")
    if common["digest"] and not _DIGEST.match(common["digest"]):
        raise BadInput("digest %r is none" % printable(common["digest"]), "give sha256: and 64 hexadecimal digits")
    if repository:
        return _in_repository(chart, repository, common)
    if "@" in chart.rpartition("/")[0]:
        raise BadInput("the chart's address holds an account", "give it by username and password")
    if chart.startswith("oci://"):
        match = _OCI.match(chart)
        if match is None:
            raise BadInput("chart %r is no oci:// address" % printable(chart), "give oci://HOST/PATH and version apart")
        return Source(OCI, chart, host=match.group("host"), **common)
    if chart.startswith(("/", "./", "../", "~")):
        return Source(LOCAL, os.path.abspath(os.path.expanduser(chart)), **common)
    raise BadInput(
        "chart %r is no oci:// address and no path" % printable(chart),
        "give an address, a path that begins with / or ./, or a name together with the URL of its repository",
    )


def _in_repository(chart: str, repository: str, common: dict[str, Any]) -> Source:
    parts = urlsplit(repository)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise BadInput("repository %r is no http:// or https:// URL" % printable(repository))
    if parts.username or parts.password:
        raise BadInput("the repository's URL holds an account", "give it by username and password")
    if not _NAME.match(chart):
        raise BadInput("chart %r is no name of a chart in a repository" % printable(chart))
    return Source(REPOSITORY, chart, repository, host=parts.netloc, **common)


def fetch(source: Source, account: Optional[Account], helm: Helm, folder: PrivateFolder) -> Chart:
    """Bring the chart here and check it.

    Raises:
        Absent: no such chart or version. Forbidden: the account is not accepted. Unreachable: no answer, or TLS.
        Conflict: digest, provenance or version are others than wanted. BadInput, Unreadable: not usable.
    """
    if account is not None:
        _require_private(source)
    if source.kind == LOCAL:
        return _local(source, helm)
    target = os.path.join(folder.path, "chart")
    os.mkdir(target, 0o700)
    if source.kind == OCI:
        reference, pulled = source.chart, _pull_oci(source, account, helm, folder, target)
    else:
        reference, pulled = source.words, _pull_repository(source, account, helm, target)
    archives = glob.glob(os.path.join(glob.escape(target), "*.tgz"))
    if len(archives) != 1:
        raise Unreadable("helm pull %s left %d archives in place of one" % (reference, len(archives)))
    manifest = _PULLED.search(pulled.stdout + "\n" + pulled.stderr)
    return _checked(source, archives[0], manifest.group(1) if manifest else "")


def _require_private(source: Source) -> None:
    """A password is not sent where others can read it on its way."""
    clear = source.plain_http if source.kind == OCI else source.repository.startswith("http://")
    host = urlsplit("//" + source.host).hostname
    if source.kind != LOCAL and clear and host not in _LOOPBACK:
        raise BadInput(
            "%s: the account would travel unencrypted to %s" % (source.words, source.host), "use HTTPS, see ca_file"
        )


def _pull_oci(source: Source, account: Optional[Account], helm: Helm, folder: PrivateFolder, target: str) -> Ended:
    """By a login file of our own: `helm registry login` may hand the password to the desktop's key store instead."""
    options = ["--registry-config", folder.write("registry/config.json", '{"auths": {}}')]
    if account is not None:
        options[1] = folder.write("registry/login.json", docker_config(source.host, account))
    options += ["--plain-http"] if source.plain_http else []
    return _pull(source, source.chart, options, account, helm, target)


def _pull_repository(source: Source, account: Optional[Account], helm: Helm, target: str) -> Ended:
    login = ["--username", account.user, "--password-stdin"] if account is not None else []
    authority = ["--ca-file", source.ca_file] if source.ca_file else []
    added = helm.run(
        ["repo", "add", _ALIAS, source.repository, *login, *authority],
        stdin="" if account is None else account.password,
    )
    if added.rc != 0:
        raise error_of(source, added, account is not None)
    return _pull(source, "%s/%s" % (_ALIAS, source.chart), [], account, helm, target)


def _pull(
    source: Source, reference: str, options: list[str], account: Optional[Account], helm: Helm, target: str
) -> Ended:
    options = [*options, "--destination", target]
    options += ["--version", source.version] if source.version else []
    options += ["--ca-file", source.ca_file] if source.ca_file else []
    options += ["--verify", "--keyring", source.keyring] if source.keyring else []
    pulled = helm.run(["pull", reference, *options])
    if pulled.rc != 0 or pulled.timed_out:
        raise error_of(source, pulled, account is not None)
    return pulled


def _local(source: Source, helm: Helm) -> Chart:
    if not os.path.exists(source.chart):
        raise Absent("%s: there is no such file or folder" % source.words, "give the path on this machine")
    if source.keyring:
        if os.path.isdir(source.chart):
            raise BadInput("%s: a folder has no provenance" % source.words, "give the signed archive")
        verified = helm.run(["verify", source.chart, "--keyring", source.keyring])
        if verified.rc != 0 or verified.timed_out:
            raise error_of(source, verified, False)
    return _checked(source, source.chart, "")


def _checked(source: Source, path: str, manifest: str) -> Chart:
    try:
        content = _folder_digest(path) if os.path.isdir(path) else _file_digest(path)
        described = _chart_yaml(path)
    except OSError as exc:
        raise Unreadable("%s: %s" % (path, exc.strerror or "it is no archive")) from exc
    chart = Chart(path, described["name"], described["version"], frozenset(filter(None, (content, manifest))))
    if source.digest and source.digest not in chart.digests:
        raise Conflict(
            "%s has the digest %s and not %s" % (source.words, " or ".join(sorted(chart.digests)), source.digest),
            "it is not what was asked for: find out who changed it; nothing was installed",
        )
    if source.exact and source.kind == LOCAL and _bare(chart.version) != _bare(source.version):
        raise Conflict(
            "%s is of version %s" % (source.words, chart.version), "give the other version, or the other file"
        )
    return chart


def _file_digest(path: str) -> str:
    whole = hashlib.sha256()
    with open(path, "rb") as handle:
        for part in iter(lambda: handle.read(_CHUNK), b""):
            whole.update(part)
    return "sha256:" + whole.hexdigest()


def _folder_digest(path: str) -> str:
    names = list(archive.select(path, ["*"], ["*~", "*.swp", ".DS_Store"]))
    return "sha256:" + archive.digest(path, names)


def _chart_yaml(path: str) -> dict[str, str]:
    """Name and version from Chart.yaml."""
    if yaml is None:
        raise Unreadable("charts cannot be read: the Python library PyYAML is missing", "install it for this Python")
    try:
        data = yaml_text.loads(_chart_text(path))
    except ValueError as exc:
        raise Unreadable("%s: its Chart.yaml is no YAML" % path) from exc
    found = {key: data.get(key) if isinstance(data, Mapping) else None for key in ("name", "version")}
    if not all(isinstance(value, str) and value for value in found.values()):
        raise Unreadable(
            "%s: its Chart.yaml names no chart and version" % path, "give the folder or archive of a chart"
        )
    return {key: str(value) for key, value in found.items()}


def _chart_text(path: str) -> str:
    if os.path.isdir(path):
        with open(os.path.join(path, "Chart.yaml"), encoding="utf-8") as handle:
            return handle.read()
    try:
        with tarfile.open(path, "r:*") as packed:
            for member in packed:
                if member.isfile() and re.match(r"(?:\./)?[^/]+/Chart\.yaml\Z", member.name):
                    return packed.extractfile(member).read(_CHUNK).decode("utf-8", "replace")
    except (tarfile.TarError, EOFError) as exc:
        raise Unreadable("%s is no archive of a chart" % path, "fetch it again") from exc
    raise Unreadable("%s has no Chart.yaml" % path, "give the archive of a chart")


def _bare(version: str) -> str:
    return version[1:] if version.startswith("v") else version


_Meaning = tuple[type[RecoveryError], str, str]

# What helm says (any version, any registry) when it cannot fetch a chart, in the order in which it is looked for.
_MEANINGS: tuple[tuple[str, _Meaning], ...] = (
    (
        r"no space left on device|disk quota exceeded",
        (RecoveryError, "no space is left for it on this machine", "free some, or set work_dir; nothing was installed"),
    ),
    (
        r"openpgp|provenance|\.prov\b|signature|keyring|sha256 sum does not match|verif(?:y|ication) .*fail",
        (Conflict, "its provenance does not hold", "find out who made it; nothing was installed"),
    ),
    (
        r"x509|certificate|tls:|server gave http response to https",
        (Unreachable, "TLS failed", "compare ca_file with the authority of the server's certificate"),
    ),
    (
        r"\b401\b|unauthorized|authentication required|no basic auth|basic credential not found|invalid_token",
        (Forbidden, "the account is not accepted (401)", "look whether the password or token is right and still valid"),
    ),
    (
        r"\b403\b|\bdenied\b|forbidden|insufficient_scope",
        (Forbidden, "the account may not read it (403)", "ask for the right to it, or look whether its name is right"),
    ),
    (
        r"\b404\b|not found|(?:manifest|name) unknown|no chart (?:version|name) found|(?:not|to) locate",
        (Absent, "there is no such chart or version", "look at its name, and which versions there are"),
    ),
    (
        r"timeout|timed out|deadline exceeded",
        (TimedOut, "no answer in time", "look whether the server works and can be reached"),
    ),
    (
        r"connection re(?:fused|set)|no such host|no route|unreachable|\beof\b|cannot be reached|\b50[0234]\b",
        (Unreachable, "the server does not answer", "look whether it works and can be reached from here"),
    ),
)


def error_of(source: Source, ended: Ended, logged_in: bool) -> RecoveryError:
    """What a helm that could not fetch a chart means. Pure."""
    said = printable(ended.stderr.strip().replace("\n", "; "), 600)
    if ended.timed_out:
        return TimedOut("%s: no answer in time" % source.words, "look whether the server works and can be reached")
    for pattern, (kind, meaning, next_step) in _MEANINGS:
        if re.search(pattern, ended.stderr, re.IGNORECASE):
            if kind is Forbidden and not logged_in:
                meaning, next_step = "the server wants an account", "give one"
            return kind("%s: %s" % (source.words, meaning), next_step, stderr=said, rc=ended.rc)
    return Unreadable("%s: helm failed: %s" % (source.words, said), rc=ended.rc)


def disk_full(exc: OSError, where: str) -> RecoveryError:
    """The error of this collection for an error in writing to `where`."""
    if exc.errno in (errno.ENOSPC, errno.EDQUOT):
        return RecoveryError(
            "no space is left on %s" % where, "free some, or set work_dir; nothing was installed", rc=exc.errno
        )
    return Unreadable("%s: %s" % (where, exc.strerror))
