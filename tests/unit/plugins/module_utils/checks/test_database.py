# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The database administrator's account against a real MariaDB, by the library and by the client program."""

from __future__ import annotations

import gc
import glob
import os
import shutil
import tempfile

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks import database
from ansible_collections.mission_control.job_recovery.plugins.module_utils.checks.database import SPEC, run

# Every character that a shell, YAML, an option file, SQL, a template or a URL takes for something else.
PASSWORDS = [
    " leading and trailing ",
    "a!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~b",
    "~}|{`_^]\\[@?>=<;:/.-,+*)('&%$#\"!",
    "#first",
    "'single'",
    '"double"',
    "back\\",
    "$HOME ${x} $(id) `id` {{ 7 * 7 }} {% raw %}",
    "'; DROP USER root; --",
    "\\n\\t\\s\\x %s %(x)s",
    "tab\tnew\nline",
    "p\u00e4ssw\u00f6rd-\u20ac-\u5bc6\u7801-\U0001f511",
    "null",
    "1e3",
]


def params(mariadb, **other):
    defaults = {name: option.get("default") for name, option in SPEC["argument_spec"].items()}
    return {**defaults, "unix_socket": mariadb.socket, "timeout": 3.0, **other}


def checks(mariadb, **other):
    result = run(params(mariadb, **other), False)
    return {item["id"]: item for item in result["checks"]}, result["seen_as"]


@pytest.fixture
def admin(mariadb):
    """Make accounts; they are gone afterwards."""
    names = []

    def make(password, grants="ALL PRIVILEGES ON *.* TO {} WITH GRANT OPTION"):
        name = "check%d" % len(names)
        with mariadb.root() as root, root.cursor() as cursor:
            cursor.execute("CREATE USER %s@localhost IDENTIFIED BY %%s" % name, (password,))
            names.append(name)
            if grants:
                cursor.execute("GRANT " + grants.format(name + "@localhost"))
        return name

    yield make
    with mariadb.root() as root, root.cursor() as cursor:
        for name in names:
            cursor.execute("DROP USER %s@localhost" % name)


# PyMySQL leaves its socket to the collector when it cannot connect, and pytest tells of that at any later moment.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(autouse=True)
def collected():
    """Within this test, not in the middle of another."""
    yield
    gc.collect()


@pytest.fixture(params=["library", "program"])
def way(request, monkeypatch):
    """As on a head node with PyMySQL, and on one that has only the client program."""
    if request.param == "program":
        if not (shutil.which("mariadb") or shutil.which("mysql")):
            pytest.fail("no client program: apt-get install mariadb-client-core")
        monkeypatch.setattr(database, "pymysql", None)
    return request.param


@pytest.mark.parametrize("password", PASSWORDS)
def test_every_character_of_a_password(mariadb, admin, way, password):
    found, seen_as = checks(mariadb, user=admin(password), password=password)
    assert {name: item["status"] for name, item in found.items()} == {
        "database_login": "passed",
        "database_version": "passed",
        "database_rights": "passed",
        "database_clock": "passed",
    }, found
    assert seen_as == "localhost"
    assert glob.glob(tempfile.gettempdir() + "/job-recovery-*/client.cnf") == []


@pytest.mark.parametrize("wrong", ["", "other", "sp", "SP ACE", "sp ace "])
def test_another_password_is_refused(mariadb, admin, way, wrong):
    found, seen_as = checks(mariadb, user=admin("sp ace"), password=wrong)
    assert [(name, item["status"]) for name, item in found.items()] == [("database_login", "failed")]
    assert "refuses the account check0" in found["database_login"]["found"]
    assert seen_as == ""


@pytest.mark.parametrize(
    ("grants", "words"),
    [
        ("", "lacks CREATE USER, CREATE, ALTER, INDEX, SELECT, INSERT, UPDATE, DELETE, GRANT OPTION"),
        ("ALL PRIVILEGES ON *.* TO {}", "lacks GRANT OPTION"),
        ("SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, INDEX ON *.* TO {} WITH GRANT OPTION", "lacks CREATE USER"),
        ("ALL PRIVILEGES ON other.* TO {} WITH GRANT OPTION", "lacks CREATE USER, CREATE"),
    ],
)
def test_what_the_account_may_not_do(mariadb, admin, way, grants, words):
    found, _seen = checks(mariadb, user=admin("x", grants), password="x")
    assert (found["database_login"]["status"], found["database_rights"]["status"]) == ("passed", "failed")
    assert words in found["database_rights"]["found"]
    assert found["database_rights"]["hint"]


def test_root_by_the_socket(mariadb, way):
    found, _seen = checks(mariadb)
    assert {item["status"] for item in found.values()} == {"passed"}


@pytest.mark.parametrize("where", [{"unix_socket": "/nowhere/s"}, {"unix_socket": "", "port": 9}])
def test_a_server_that_is_not_there_is_unknown(mariadb, way, where):
    found, _seen = checks(mariadb, **where)
    assert [(name, item["status"]) for name, item in found.items()] == [("database_login", "unknown")]
    assert "cannot be reached" in found["database_login"]["found"]


def test_a_server_that_hangs_is_unknown(mariadb, way):
    mariadb.freeze()
    try:
        found, _seen = checks(mariadb, timeout=1.0)
    finally:
        mariadb.thaw()
    assert found["database_login"]["status"] == "unknown"


def test_nothing_to_ask_with_says_what_to_install(mariadb, monkeypatch, tmp_path):
    monkeypatch.setattr(database, "pymysql", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    found, _seen = checks(mariadb)
    assert found["database_login"]["status"] == "unknown"
    assert "python3-pymysql" in found["database_login"]["hint"]


def test_the_password_is_in_no_command_line(mariadb, monkeypatch, tmp_path):
    """A client that tells how it was called, and whether others could read its options."""
    client = tmp_path / "mariadb"
    client.write_text(
        '#!/bin/sh\necho "$0 $*" > "$LOG"; env >> "$LOG"\n'
        'stat -c "mode %a" "${1#--defaults-file=}" "$(dirname "${1#--defaults-file=}")" >> "$LOG"\nexit 1\n'
    )
    client.chmod(0o755)
    log = tmp_path / "log"
    monkeypatch.setattr(database, "pymysql", None)
    monkeypatch.setenv("PATH", "%s:%s" % (tmp_path, os.environ["PATH"]))
    monkeypatch.setenv("LOG", str(log))
    checks(mariadb, password="SECRET-XYZ")
    assert "SECRET-XYZ" not in log.read_text()
    assert log.read_text().splitlines()[-2:] == ["mode 600", "mode 700"]


@pytest.mark.parametrize(
    ("version", "status"),
    [
        ("10.11.6-MariaDB-0+deb12u1", "passed"),
        ("5.5.5-10.3.39-MariaDB", "passed"),
        ("10.1.48-MariaDB", "failed"),
        ("8.0.39", "passed"),
        ("8.4.2-commercial", "passed"),
        ("5.6.51", "failed"),
        ("unheard of", "unknown"),
    ],
)
def test_versions(version, status):
    assert database.version_check(version).status == status


MATCHES = [
    ("10.0.0.7", "10.0.0.7", True),
    ("10.0.0.7", "10.0.0.70", False),
    ("10.0.0.7", "::ffff:10.0.0.7", True),
    ("10.0.0.%", "10.0.0.7", True),
    ("10.0.0.%", "10.0.1.7", False),
    ("10.0.0._", "10.0.0.7", True),
    ("10.0.0._", "10.0.0.77", False),
    ("10.%", "100.0.0.7", False),
    ("10.0.0.0/255.255.255.0", "10.0.0.7", True),
    ("10.0.0.0/255.255.255.0", "10.0.1.7", False),
    ("10.0.0.0/24", "10.0.0.7", True),
    ("10.0.0.0/99", "10.0.0.7", False),
    ("10.0.0.0/24", "head1", False),
    ("fd00::7", "fd00:0:0:0:0:0:0:7", True),
    ("fd00::/64", "fd00::7", True),
    ("fd00::%", "fd00::7", True),
    ("head1.example.org", "HEAD1.example.org", True),
    ("%.example.org", "head1.example.org", True),
    ("head1", "head1.example.org", False),
    ("head.1", "head-1", False),  # a dot is a dot
    ("localhost", "localhost", True),
    ("localhost", "127.0.0.1", False),
    ("%", "10.0.0.7", True),
]


@pytest.mark.parametrize(("pattern", "host", "held"), MATCHES)
def test_host_patterns(pattern, host, held):
    assert database.matches(pattern, host) is held


ADDRESSES = ["127.0.0.1", "::1", "fe80::1%eth0", "10.0.0.7", "192.168.1.7"]


@pytest.mark.parametrize(
    ("pattern", "addresses", "seen_as", "status", "words"),
    [
        ("10.0.0.7", ADDRESSES, "10.0.0.7", "passed", "as which the server sees"),
        ("10.0.0.8", ADDRESSES, "10.0.0.7", "failed", "does not hold 10.0.0.7"),
        ("10.0.0.7", ADDRESSES, "head1.example.org", "failed", "does not hold head1.example.org"),
        ("%.example.org", ADDRESSES, "head1.example.org", "passed", "as which"),
        ("10.0.0.7", ADDRESSES, "", "warning", "and not 192.168.1.7"),
        ("10.0.0.%", ["10.0.0.7", "10.0.0.8"], "", "passed", "holds all of"),
        ("10.9.0.0/16", ADDRESSES, "", "failed", "none of the controller's addresses (10.0.0.7, 192.168.1.7)"),
        ("localhost", ADDRESSES, "", "passed", "only from the server itself"),
        ("127.0.0.1", ADDRESSES, "", "passed", "only from the server itself"),
        ("head1", ADDRESSES, "", "passed", "by name"),
        ("%", ADDRESSES, "10.0.0.7", "warning", "every host"),
        ("%.%", ADDRESSES, "", "warning", "every host"),
        ("", ADDRESSES, "", "failed", "no pattern"),
        ("10.0.0.7", ["nonsense"], "", "failed", "none known"),
    ],
)
def test_the_host_of_the_ledgers_account(mariadb, pattern, addresses, seen_as, status, words):
    given = params(mariadb, login=False, account_host=pattern, addresses=addresses, seen_as=seen_as)
    (check,) = run(given, False)["checks"]
    assert (check["status"], words in check["found"]) == (status, True), check
    assert bool(check["hint"]) == (status != "passed")


def test_a_real_server_holds_what_we_hold(mariadb):
    """The server's own LIKE for the text patterns of the table."""
    with mariadb.root() as root, root.cursor() as cursor:
        for pattern, host, held in MATCHES:
            if "/" not in pattern and ":" not in host:
                cursor.execute("SELECT LOWER(%s) LIKE LOWER(%s)", (host, pattern))
                assert bool(cursor.fetchone()[0]) is held, (pattern, host)
