# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import base64
import json

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import BadInput, Unreadable
from ansible_collections.mission_control.job_recovery.plugins.module_utils.helm import account

USER, TOKEN = "$oauthtoken", "nvapi-$HOME-`id`-\"'x"
NOTHING = {"username": None, "password": None, "password_file": None, "docker_config": None}


def auth(user=USER, password=TOKEN):
    return base64.b64encode(("%s:%s" % (user, password)).encode()).decode()


def stored(tmp_path, text, mode=0o600):
    path = tmp_path / "file"
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def test_no_account():
    assert account.read(NOTHING, "h") is None
    assert account.read(dict(NOTHING, username="", password=""), "h") is None


def test_user_and_password():
    found = account.read(dict(NOTHING, username=USER, password=TOKEN), "h")
    assert (found.user, found.password) == (USER, TOKEN)
    assert TOKEN not in repr(found)
    assert found.basic == auth()


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_a_password_file(tmp_path, end):
    found = account.read(dict(NOTHING, username=USER, password_file=stored(tmp_path, TOKEN + end)), "h")
    assert found.password == TOKEN


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"username": "u"}, "no password"),
        ({"password": "p"}, "no username"),
        ({"username": "u", "password": '"quoted"'}, "in quotes"),
        ({"username": "u", "password": " blank"}, "blank"),
        ({"username": "u", "password": "two\nlines"}, "control character"),
        ({"username": "a:b", "password": "p"}, "colon"),
    ],
)
def test_half_and_miscopied_accounts_are_refused(given, why):
    with pytest.raises(BadInput, match=why) as caught:
        account.read({**NOTHING, **given}, "h")
    assert "quoted" not in str(caught.value).replace("in quotes", "")


def test_a_file_that_all_can_read_is_refused(tmp_path):
    with pytest.raises(BadInput, match="every user can read"):
        account.read(dict(NOTHING, username="u", password_file=stored(tmp_path, "x", 0o644)), "h")
    with pytest.raises(Unreadable, match="No such file"):
        account.read(dict(NOTHING, username="u", password_file=str(tmp_path / "none")), "h")


@pytest.mark.parametrize(
    ("auths", "host"),
    [
        ({"h:5000": {"auth": auth()}}, "h:5000"),
        ({"x": {}, "h": {"username": USER, "password": TOKEN, "auth": "other"}}, "h"),
        ({"https://h/v2/": {"auth": auth()}}, "h"),
        ({"https://index.docker.io/v1/": {"auth": auth()}}, "registry-1.docker.io"),
    ],
)
def test_dockers_file(tmp_path, auths, host):
    path = stored(tmp_path, json.dumps({"auths": auths}))
    found = account.read(dict(NOTHING, docker_config=path), host)
    assert (found.user, found.password) == (USER, TOKEN)


@pytest.mark.parametrize(
    ("text", "error", "why"),
    [
        ("no json", Unreadable, "no .auths."),
        ('{"h": {"auth": "x"}}', Unreadable, "no .auths."),
        (json.dumps({"auths": {"other": {"auth": auth()}}}), BadInput, "no account for h"),
        (json.dumps({"auths": {"h": {"auth": "!"}}}), Unreadable, "no user and password"),
        (json.dumps({"auths": {"h": {}}}), Unreadable, "no user and password"),
        (json.dumps({"auths": {"h": {"auth": auth(password=TOKEN + "\n")}}}), BadInput, "control character"),
    ],
)
def test_faulty_dockers_files_are_named(tmp_path, text, error, why):
    with pytest.raises(error, match=why) as caught:
        account.read(dict(NOTHING, docker_config=stored(tmp_path, text)), "h")
    assert "nvapi" not in str(caught.value)


@pytest.mark.parametrize(
    ("host", "key"), [("nvcr.io", "nvcr.io"), ("h:5000", "h:5000"), ("docker.io", "https://index.docker.io/v1/")]
)
def test_the_login_file(host, key):
    assert json.loads(account.docker_config(host, account.Account(USER, TOKEN))) == {"auths": {key: {"auth": auth()}}}
