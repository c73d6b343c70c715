# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Can the ledger be made: the database administrator's account, its rights, and the host pattern of the new account.

Asked by PyMySQL where this Python has it, else by the client program of MySQL or MariaDB: before the first installation
the head node often has only that. The password goes to neither a command line nor an environment.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
from typing import Any, Mapping, Optional, Sequence

try:
    import netaddr
except ImportError:  # said clearly at use
    netaddr = None
try:
    import pymysql
except ImportError:  # then the client program is used
    pymysql = None

from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks.model import (
    FAILED,
    PASSED,
    UNKNOWN,
    WARNING,
    Check,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import (
    Absent,
    Forbidden,
    RecoveryError,
    TimedOut,
    Unreachable,
    Unreadable,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.reading import printable
from ansible_collections.mission_control.job_recovery.plugins.module_utils.nodes.process import Finished, run_bounded

SPEC: dict[str, Any] = {
    "argument_spec": {
        "login": {"type": "bool", "default": True},
        "host": {"type": "str", "default": "127.0.0.1"},
        "port": {"type": "int", "default": 3306},
        "unix_socket": {"type": "str", "default": ""},
        "user": {"type": "str", "default": "root"},
        "password": {"type": "str", "default": "", "no_log": True},
        "ca_file": {"type": "str", "default": ""},
        "timeout": {"type": "float", "default": 5.0},
        "account_host": {"type": "str", "default": ""},
        "addresses": {"type": "list", "elements": "str", "default": []},
        "seen_as": {"type": "str", "default": ""},
    },
    "supports_check_mode": True,
}

# The oldest servers that the ledger was made for, by what is in their version text.
_OLDEST = {"MariaDB": (10, 3), "MySQL": (5, 7)}
# What the installer does, and what it gives to the ledger's account, which it must hold to give it.
_NEEDED = ("CREATE USER", "CREATE", "ALTER", "INDEX", "SELECT", "INSERT", "UPDATE", "DELETE")
_QUESTION = "SELECT VERSION(), CURRENT_USER(), USER(), UNIX_TIMESTAMP()"
_RIGHTS = "SELECT GRANTEE, PRIVILEGE_TYPE, IS_GRANTABLE FROM information_schema.USER_PRIVILEGES"
_REFUSED = (1044, 1045, 1130, 1698, 3118, 3159)
_LOCAL = ("localhost", "127.0.0.1", "::1")
_MASK = re.compile(r"[0-9a-fA-F.:]+/[0-9a-fA-F.:]+\Z")
_ZONE = re.compile(r"(?<=:[0-9a-fA-F])%[A-Za-z]\S*\Z")  # of fe80::1%eth0
_MAX_OUTPUT = 1048576


def run(params: dict[str, Any], check_mode: bool) -> dict[str, Any]:
    """Log in once as the administrator, and judge. Nothing is changed.

    Returns:
        `{"changed": false, "checks": [...], "seen_as"}`, the last being the host under which the server sees this one;
        empty without a login.
    """
    del check_mode  # reads only
    checks, seen_as = login_checks(params) if params["login"] else ([], params["seen_as"])
    if params["addresses"] or params["account_host"]:
        checks.append(account_host(params["account_host"], params["addresses"], seen_as))
    return {"changed": False, "checks": [check.as_dict() for check in checks], "seen_as": seen_as}


def login_checks(params: Mapping[str, Any]) -> tuple[list[Check], str]:
    """Login, version, rights and clock; and how the server sees us."""
    title, required = "The database administrator's account", "%s logs in" % params["user"]
    try:
        ((version, current, user, now),) = ask(params, _QUESTION)
        grants = ask(params, _RIGHTS)
    except RecoveryError as exc:
        status = FAILED if isinstance(exc, Forbidden) else UNKNOWN
        hint = "correct ledger_admin_user, ledger_admin_password and the server's address"
        return [Check("database_login", title, required, str(exc), status, exc.next_step or hint)], ""
    seen_as = user.rpartition("@")[2]
    found = "%s on %s" % (printable(current), _where(params))
    checks = [
        Check("database_login", title, required, found, PASSED),
        version_check(version),
        rights_check(current, grants),
        _clock(float(now), time.time()),
    ]
    return checks, seen_as


def version_check(version: str) -> Check:
    """From the server's own words, `10.11.6-MariaDB-0+deb12u1` or `8.0.39`."""
    product = "MariaDB" if "mariadb" in version.lower() else "MySQL"
    numbers = tuple(int(number) for number in re.findall(r"\d+", version.replace("5.5.5-", "", 1))[:2])
    oldest = _OLDEST[product]
    required = " or ".join("%s %d.%d" % (name, *least) for name, least in sorted(_OLDEST.items())) + " or newer"
    status = UNKNOWN if len(numbers) < 2 else PASSED if numbers >= oldest else FAILED
    hint = "" if status == PASSED else "upgrade the database server"
    found = "%s %s" % (product, printable(version))
    return Check("database_version", "The database server's version", required, found, status, hint)


def rights_check(account: str, grants: Sequence[Sequence[str]]) -> Check:
    """Whether the account may make a database and an account, and give it rights.

    Args:
        account: as CURRENT_USER() says, `root@localhost`.
        grants: rows of information_schema.USER_PRIVILEGES: grantee, privilege, YES or NO.
    """
    user, _at, host = account.rpartition("@")
    grantee = "'%s'@'%s'" % (user, host)
    mine = {privilege: grantable for who, privilege, grantable in grants if who == grantee}
    missing = [privilege for privilege in _NEEDED if privilege not in mine]
    no_grant = "YES" not in mine.values()
    title, required = "The database administrator's rights", "may make a database and an account, and grant rights"
    if not missing and not no_grant:
        return Check("database_rights", title, required, "may do all of it", PASSED)
    lacking = missing + (["GRANT OPTION"] if no_grant else [])
    hint = "use an account with ALL PRIVILEGES ON *.* WITH GRANT OPTION, such as root"
    return Check("database_rights", title, required, "lacks %s" % ", ".join(lacking), FAILED, hint)


def account_host(pattern: str, addresses: Sequence[str], seen_as: str) -> Check:
    """Whether the ledger's account, limited to this host pattern, lets the controller in, and nobody else.

    Args:
        pattern: `10.0.0.7`, `10.0.0.%`, `10.0.0.0/255.255.255.0`, `10.0.0.0/24`, a name, `localhost` or `%`.
        addresses: all of the controller's.
        seen_as: the host under which the server sees it now; empty where nobody asked.
    """
    title = "The ledger account's host"
    required = "its pattern holds the controller's address, and no other's"
    hint = "set ledger_account_host to the address under which the database server sees the controller"
    if not pattern:
        return Check("database_account_host", title, required, "no pattern", FAILED, hint)
    if netaddr is None:
        found, hint = "the Python library netaddr is missing", "install it for the Python that runs ansible-playbook"
        return Check("database_account_host", title, required, found, UNKNOWN, hint)
    shown = printable(pattern, 100)
    if pattern.strip("%_.:") == "":
        return Check("database_account_host", title, required, "%s lets every host in" % shown, WARNING, hint)
    if seen_as and matches(pattern, seen_as):
        found = "%s holds %s, as which the server sees the controller" % (shown, printable(seen_as, 100))
        return Check("database_account_host", title, required, found, PASSED)
    if seen_as:
        found = "%s does not hold %s, as which the server sees the controller" % (shown, printable(seen_as, 100))
        return Check("database_account_host", title, required, found, FAILED, hint)
    usual = [one for one in map(_address, addresses) if one is not None and not _beside_the_point(one)]
    inside = [one for one in usual if matches(pattern, str(one))]
    outside = sorted(set(map(str, usual)) - set(map(str, inside)))
    if pattern in _LOCAL or not _looks_like_addresses(pattern):
        found = "%s, by name" % shown if pattern not in _LOCAL else "%s: only from the server itself" % shown
        return Check("database_account_host", title, required, found, PASSED)
    if not inside:
        found = "%s holds none of the controller's addresses (%s)" % (shown, ", ".join(outside) or "none known")
        return Check("database_account_host", title, required, found, FAILED, hint)
    if outside:
        found = "%s holds %s, and not %s" % (shown, ", ".join(map(str, inside)), ", ".join(outside))
        hint = "make sure that the controller always reaches the server from an address that is held"
        return Check("database_account_host", title, required, found, WARNING, hint)
    found = "%s holds all of %s" % (shown, ", ".join(map(str, inside)))
    return Check("database_account_host", title, required, found, PASSED)


def matches(pattern: str, host: str) -> bool:
    """Whether a host pattern of MySQL or MariaDB holds a host: an address, a netmask, or text with LIKE's wildcards."""
    address = _address(host)
    if _MASK.match(pattern):
        try:
            return address is not None and address in netaddr.IPNetwork(pattern)
        except (netaddr.AddrFormatError, ValueError):
            return False
    exact = _address(pattern)
    if exact is not None:
        return address == exact
    like = "".join({"%": ".*", "_": "."}.get(letter, re.escape(letter)) for letter in pattern)
    texts = [host] if address is None else [host, str(address)]
    return any(re.match(like + r"\Z", text, re.IGNORECASE) for text in texts)


def ask(params: Mapping[str, Any], sql: str) -> list[list[str]]:
    """The rows of one query, each value as text.

    Raises:
        Forbidden: the account is refused. Unreachable, TimedOut: no answer. Absent: there is nothing here to ask with.
        Unreadable: the answer is not understood.
    """
    return _by_library(params, sql) if pymysql is not None else _by_program(params, sql)


def _by_library(params: Mapping[str, Any], sql: str) -> list[list[str]]:
    ways = _ways(params)
    for way in ways[:-1]:
        try:
            return _query(params, way, sql)
        except (Forbidden, Unreadable):
            pass  # an account, or a way to authenticate, that wants TLS: the next way has it
    return _query(params, ways[-1], sql)


def _ways(params: Mapping[str, Any]) -> list[dict[str, Any]]:
    """How to connect, the first that works. PyMySQL prepares TLS unless told not to, which takes a while."""
    if params["unix_socket"]:
        return [{"unix_socket": params["unix_socket"], "ssl_disabled": True}]
    address = {"host": params["host"], "port": params["port"]}
    if params["ca_file"]:
        return [{**address, "ssl": {"ca": params["ca_file"], "check_hostname": True}}]
    return [{**address, "ssl_disabled": True}, address] if params["host"] in _LOCAL else [address]


def _query(params: Mapping[str, Any], way: Mapping[str, Any], sql: str) -> list[list[str]]:
    where = _where(params)
    try:
        connection = pymysql.connect(
            **way,
            user=params["user"],
            password=params["password"].encode(),  # as text PyMySQL takes it for Latin-1
            connect_timeout=max(1, int(params["timeout"])),
            read_timeout=params["timeout"],
            write_timeout=params["timeout"],
            charset="utf8mb4",
        )
        try:
            with connection.cursor() as cursor:
                cursor.execute(sql)
                return [["" if value is None else str(value) for value in row] for row in cursor.fetchall()]
        finally:
            connection.close()
    except RuntimeError as exc:  # PyMySQL: caching_sha2_password without TLS needs another library
        hint = "set job_recovery_ledger_ca_file"
        raise Unreadable("%s: PyMySQL cannot authenticate without TLS" % where, hint) from exc
    except (pymysql.err.Error, OSError) as exc:
        code = exc.args[0] if exc.args and isinstance(exc.args[0], int) else 0
        raise _error(where, params["user"], code, str(exc)) from None


def _by_program(params: Mapping[str, Any], sql: str) -> list[list[str]]:
    done = run_client(params, sql)
    where = _where(params)
    if done.timed_out:
        raise TimedOut("%s gave no answer in time" % where, "is the database up?")
    if done.rc:
        match = re.search(r"ERROR (\d+)", done.stderr)
        raise _error(where, params["user"], int(match.group(1)) if match else 0, done.stderr)
    return [line.split("\t") for line in done.stdout.splitlines()]


def run_client(params: Mapping[str, Any], sql: str) -> Finished:
    """Run the database's client program on this host.

    The password is in no argument and no environment: the client reads it from a file of mode 0600 that is gone when it
    ends. Option files and variables of the host are not read; they might hold another password that works.

    Raises:
        Absent: there is no such program. Unreadable: no private folder can be made.
    """
    program = shutil.which("mariadb") or shutil.which("mysql")
    if program is None:
        raise Absent(
            "neither PyMySQL nor a client program is on this host, so the account cannot be tried",
            "install python3-pymysql or the client (mariadb-client, mysql) on the head node, or accept database_login: "
            "the installation tries the account as soon as it brought its own library",
        )
    try:
        folder = tempfile.mkdtemp(prefix="job-recovery-")  # mode 0700
    except OSError as exc:
        raise Unreadable("no private folder can be made (%s)" % type(exc).__name__) from exc
    try:
        path = os.path.join(folder, "client.cnf")
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as handle:
            handle.write(option_file(params))
        argv = [program, "--defaults-file=" + path, "--batch", "--skip-column-names", "--execute", sql]
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("MYSQL_", "MARIADB_"))}
        clean.update(LC_ALL="C", MYSQL_TEST_LOGIN_FILE=os.devnull)
        return run_bounded(argv, time.monotonic() + params["timeout"] + 1, _MAX_OUTPUT, clean)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def option_file(params: Mapping[str, Any]) -> str:
    """The client program's options. In quotes a backslash begins an escape, and nothing else means anything."""
    options = {"user": params["user"], "password": params["password"], "connect-timeout": int(params["timeout"]) or 1}
    if params["unix_socket"]:
        options["socket"] = params["unix_socket"]
    else:
        options.update(host=params["host"], port=params["port"], protocol="tcp")
    if params["ca_file"]:
        options["ssl-ca"] = params["ca_file"]
    lines = ["%s=%s" % (name, _quoted(str(value))) for name, value in options.items()]
    return "[client]\n%s\n" % "\n".join(lines)


def _quoted(text: str) -> str:
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b"}
    return '"%s"' % "".join(escapes.get(letter, letter) for letter in text)


def _error(where: str, user: str, code: int, said: str) -> RecoveryError:
    if code in _REFUSED:
        return Forbidden("%s refuses the account %s (MySQL error %d)" % (where, user, code))
    if "timed out" in said:
        return TimedOut("%s gave no answer in time" % where, "is the database up?")
    if 2000 <= code < 2100 or not code:
        return Unreachable("%s cannot be reached (MySQL error %d)" % (where, code), "is the database up?")
    return Unreadable("%s: MySQL error %d" % (where, code))


def _clock(theirs: float, ours: float) -> Check:
    """The ledger's leases are ruled by the database's clock."""
    seconds = round(abs(theirs - ours))
    title, required = "The database's clock", "at most 10 s off the head node's"
    hint = "" if seconds <= 10 else "let chrony or systemd-timesyncd run on both hosts"
    return Check("database_clock", title, required, "%d s off" % seconds, PASSED if seconds <= 10 else FAILED, hint)


def _where(params: Mapping[str, Any]) -> str:
    return "the database at %s" % (params["unix_socket"] or "%s:%d" % (params["host"], params["port"]))


def _address(text: str) -> Optional[Any]:
    """An address in its plain form: an IPv4 address in IPv6 clothes (::ffff:10.0.0.7) is the IPv4 address."""
    try:
        address = netaddr.IPAddress(_ZONE.sub("", text), flags=netaddr.INET_PTON)
    except (netaddr.AddrFormatError, ValueError):
        return None
    return address.ipv4() if address.is_ipv4_mapped() else address


def _beside_the_point(address: Any) -> bool:
    return address.is_loopback() or address.is_link_local()


def _looks_like_addresses(pattern: str) -> bool:
    return bool(re.match(r"[0-9a-fA-F.:%_/]+\Z", pattern)) and bool(re.match(r"[0-9:]", pattern))
