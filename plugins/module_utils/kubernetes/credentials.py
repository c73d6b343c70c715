# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the API server is and how it knows us: a kubeconfig file, or the ServiceAccount of the pod we run in.

Plain kubeconfigs (certificates, a token, a token file, a password) are read here, because importing the official
client costs more than half a second of CPU, which every recovery run would pay. A kubeconfig that gets its credentials
from a program or a cloud (`exec`, `auth-provider`) is left to the official client, which knows them all.
Key material given inline is on disk only while it is loaded, in a private folder.
"""

from __future__ import annotations

import base64
import binascii
import os
import ssl
import tempfile
from dataclasses import dataclass
from typing import Any, Mapping, Optional

try:
    import yaml
except ImportError:  # said clearly at use
    yaml = None

from ansible_collections.mission_control.job_recovery.plugins.module_utils import yaml_text
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import BadInput, Unreadable

SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
DEFAULT_KUBECONFIG = "~/.kube/config"
IN_CLUSTER = "in-cluster"


@dataclass(frozen=True)
class Credentials:
    """How to reach and to convince one API server. Never shown: `repr` would hold secrets.

    Attributes:
        server: base URL without a slash at its end.
        authorization: the whole value of the Authorization header, or the empty text.
        ca_file, ca_data: the CA as a path or as PEM text; both empty = the system's CAs.
        cert_file, cert_data, key_file, key_data: the client certificate, each as a path or as PEM bytes.
        verify: whether the server's certificate is checked.
        server_name: the name its certificate must bear, where it differs from the URL's.
        proxy: URL of an HTTP proxy, or the empty text.
    """

    server: str
    authorization: str = ""
    ca_file: str = ""
    ca_data: str = ""
    cert_file: str = ""
    cert_data: bytes = b""
    key_file: str = ""
    key_data: bytes = b""
    verify: bool = True
    server_name: str = ""
    proxy: str = ""

    def __repr__(self) -> str:
        return "Credentials(server=%r)" % self.server


def load(kubeconfig: str = "", context: str = "", environ: Optional[Mapping[str, str]] = None) -> Credentials:
    """Read the credentials anew.

    Args:
        kubeconfig: a path, or `in-cluster`; empty = $KUBECONFIG, else the pod's ServiceAccount where there is one,
            else ~/.kube/config.
        context: its context; empty = its current one.
        environ: the environment, for tests.

    Raises:
        Unreadable: a file is missing or is not what it should be.
        BadInput: no such context, cluster or user.
    """
    environ = os.environ if environ is None else environ
    in_pod = bool(environ.get("KUBERNETES_SERVICE_HOST")) and os.path.exists(SERVICE_ACCOUNT + "/token")
    path = kubeconfig or environ.get("KUBECONFIG", "") or (IN_CLUSTER if in_pod else DEFAULT_KUBECONFIG)
    if path == IN_CLUSTER:
        return _service_account(environ)
    return _kubeconfig(os.path.expanduser(path), context)


def contexts(kubeconfig: str) -> tuple[list[str], str]:
    """The names of a kubeconfig's contexts, and of its current one (empty where it has none).

    Raises:
        Unreadable: the file is missing or is not what it should be.
    """
    path = os.path.expanduser(kubeconfig)
    data = _read(path)
    entries = data.get("contexts") or []
    names = [str(entry["name"]) for entry in entries if isinstance(entry, Mapping) and entry.get("name")]
    current = str(data.get("current-context") or "")
    return names, current if current in names else ""


def ssl_context(credentials: Credentials) -> ssl.SSLContext:
    """TLS as the credentials want it.

    Raises:
        Unreadable: a certificate or key cannot be loaded (which one; never its content).
    """
    try:
        made = ssl.create_default_context(cafile=credentials.ca_file or None, cadata=credentials.ca_data or None)
    except (OSError, ValueError) as exc:
        raise Unreadable("kubeconfig: its certificate authority cannot be loaded (%s)" % exc) from exc
    if not credentials.verify:
        made.check_hostname = False
        made.verify_mode = ssl.CERT_NONE
    if credentials.cert_file or credentials.cert_data:
        _load_client_certificate(made, credentials)
    return made


def _load_client_certificate(made: ssl.SSLContext, credentials: Credentials) -> None:
    with tempfile.TemporaryDirectory(prefix="job-recovery-") as private:  # mode 0700
        cert = credentials.cert_file or _stored(private, "crt", credentials.cert_data)
        key = credentials.key_file or (_stored(private, "key", credentials.key_data) if credentials.key_data else None)
        try:
            made.load_cert_chain(cert, key)
        except (OSError, ValueError) as exc:
            raise Unreadable("kubeconfig: its client certificate or key cannot be loaded (%s)" % exc) from exc


def _stored(folder: str, name: str, data: bytes) -> str:
    path = os.path.join(folder, name)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as handle:
        handle.write(data)
    return path


def _service_account(environ: Mapping[str, str]) -> Credentials:
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise BadInput(
            "in-cluster credentials: this is no pod ($KUBERNETES_SERVICE_HOST is empty)", "name a kubeconfig"
        )
    return Credentials(
        server="https://%s:%s" % ("[%s]" % host if ":" in host else host, port),
        authorization="Bearer " + _text(SERVICE_ACCOUNT + "/token").strip(),
        ca_file=SERVICE_ACCOUNT + "/ca.crt",
    )


def _kubeconfig(path: str, context: str) -> Credentials:
    data = _read(path)
    chosen = context or data.get("current-context") or ""
    links = _named(path, data, "context", chosen)
    user = _named(path, data, "user", links["user"]) if links.get("user") else {}
    if "exec" in user or "auth-provider" in user:
        return _by_official_client(path, chosen)
    return _plain(path, _named(path, data, "cluster", links.get("cluster", "")), user)


def _read(path: str) -> Mapping[str, Any]:
    if yaml is None:
        raise Unreadable("kubeconfig %s: the Python library PyYAML is missing" % path, "install it for this Python")
    try:
        data = yaml_text.loads(_text(path))
    except ValueError as exc:  # its cause may hold the line it stumbled over
        raise Unreadable("kubeconfig %s: no YAML (%s)" % (path, exc)) from None
    if not isinstance(data, Mapping):
        raise Unreadable("kubeconfig %s: no mapping" % path)
    return data


def _named(path: str, data: Mapping[str, Any], kind: str, name: str) -> Mapping[str, Any]:
    """The entry `name` of `data`'s clusters, users or contexts."""
    for entry in data.get(kind + "s") or []:
        if isinstance(entry, Mapping) and entry.get("name") == name and isinstance(entry.get(kind), Mapping):
            return entry[kind]
    raise BadInput("kubeconfig %s: no %s named %r" % (path, kind, name))


def _plain(path: str, cluster: Mapping[str, Any], user: Mapping[str, Any]) -> Credentials:
    server = cluster.get("server")
    if not isinstance(server, str) or not server.startswith(("https://", "http://")):
        raise Unreadable("kubeconfig %s: the cluster's server is %r, no URL" % (path, server))
    ca_data = _decoded(path, cluster, "certificate-authority-data")
    return Credentials(
        server=server.rstrip("/"),
        authorization=_authorization(path, user),
        ca_file="" if ca_data else _beside(path, cluster.get("certificate-authority")),
        ca_data=ca_data.decode("ascii", "replace"),
        cert_file=_beside(path, user.get("client-certificate")),
        cert_data=_decoded(path, user, "client-certificate-data"),
        key_file=_beside(path, user.get("client-key")),
        key_data=_decoded(path, user, "client-key-data"),
        verify=cluster.get("insecure-skip-tls-verify") is not True,
        server_name=cluster.get("tls-server-name") or "",
        proxy=cluster.get("proxy-url") or "",
    )


def _authorization(path: str, user: Mapping[str, Any]) -> str:
    """A token file is preferred to the token beside it, as kubectl does, because it is the one that is renewed."""
    if user.get("tokenFile"):
        return "Bearer " + _text(_beside(path, user["tokenFile"])).strip()
    if user.get("token"):
        return "Bearer " + str(user["token"]).strip()
    if user.get("username"):
        pair = "%s:%s" % (user["username"], user.get("password", ""))
        return "Basic " + base64.b64encode(pair.encode()).decode()
    return ""


def _by_official_client(path: str, context: str) -> Credentials:
    try:
        from kubernetes import client, config  # late: see the top of this file
    except ImportError as exc:
        raise Unreadable(
            "kubeconfig %s: it gets its credentials from a program or a cloud, and the Python library kubernetes, "
            "which can do that, is missing" % path,
            "install it, or use a kubeconfig with a certificate or a token",
        ) from exc
    loaded = client.Configuration()
    try:
        config.load_kube_config(path, context=context, client_configuration=loaded, persist_config=False)
    except Exception as exc:  # noqa: BLE001 - credential plug-ins raise anything; their text may hold secrets
        raise Unreadable("kubeconfig %s: no credentials to be had (%s)" % (path, type(exc).__name__)) from None
    return Credentials(
        server=loaded.host.rstrip("/"),
        authorization=loaded.auth_settings().get("BearerToken", {}).get("value") or "",
        ca_file=loaded.ssl_ca_cert or "",
        cert_file=loaded.cert_file or "",
        key_file=loaded.key_file or "",
        verify=bool(loaded.verify_ssl),
        server_name=getattr(loaded, "tls_server_name", None) or "",
        proxy=loaded.proxy or "",
    )


def _beside(path: str, name: Any) -> str:
    """A path in a kubeconfig is relative to the kubeconfig's folder."""
    return os.path.join(os.path.dirname(os.path.abspath(path)), str(name)) if name else ""


def _decoded(path: str, entry: Mapping[str, Any], key: str) -> bytes:
    try:
        return base64.b64decode(entry.get(key) or b"", validate=True)
    except (binascii.Error, ValueError, TypeError):
        raise Unreadable("kubeconfig %s: %s is no base64" % (path, key)) from None


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as handle:
            return handle.read()
    except (OSError, UnicodeDecodeError) as exc:
        reason = getattr(exc, "strerror", None) or "no text"
        raise Unreadable("kubernetes credentials: %s: %s" % (path, reason), "give a kubeconfig that exists") from exc
