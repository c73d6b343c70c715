# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Docker's configurations as people and tools leave them in secrets, each with what is wrong with it."""

from __future__ import annotations

import base64
import json
import time

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.registry import docker_config
from ansible_collections.mission_control.job_recovery.plugins.module_utils.registry.login import Login

NOW = 1_800_000_000.0
USER = "$oauthtoken"
KEY = "nvapi-" + "k" * 64
LOGIN = Login(USER, KEY)


def b64(text):
    return base64.b64encode(text.encode()).decode()


PAIR = "%s:%s" % (USER, KEY)
GOOD = {"auth": b64(PAIR)}


def auths(entry, key="nvcr.io"):
    return {"auths": {key: entry}}


@pytest.mark.parametrize(
    "entry",
    [
        {"auth": b64(PAIR)},
        {"auth": b64(PAIR).rstrip("=")},
        {"auth": b64(PAIR) + "\n"},
        {"username": USER, "password": KEY},
        {"username": USER, "password": KEY, "auth": b64(PAIR), "email": "a@example.org"},
        {"username": USER, "password": KEY, "auth": ""},
    ],
)
def test_right_in_any_form(entry):
    config = docker_config.read(json.dumps(auths(entry)), NOW)
    assert config.all_faults() == []
    assert [one.login for one in config.entries] == [LOGIN]


@pytest.mark.parametrize(
    ("text", "faults", "login"),
    [
        # the whole
        ("", "it is empty", None),
        ("auths: {}", "it is no JSON", None),
        (json.dumps(auths(GOOD)).replace('"', "'"), "it is no JSON", None),
        ("\ufeff" + json.dumps(auths(GOOD)), "it is no JSON: it begins with a byte order mark", None),
        ("[]", "it is JSON, but no object", None),
        ('"%s"' % b64(PAIR), "it is JSON, but no object", None),
        ("null", "it is no JSON", None),
        ("[" * 100_000, "it is no JSON", None),
        (b64("[" * 100_000), "it is no JSON", None),
        ("{}", "it has no level auths, so the kubelet finds no credentials in it", None),
        (json.dumps({"nvcr.io": GOOD}), "it has no level auths, so the kubelet finds no credentials in it", LOGIN),
        (json.dumps({"Auths": {"nvcr.io": GOOD}}), "its auths is not written in small letters", LOGIN),
        (json.dumps({"auths": [GOOD]}), "its auths is no object", None),
        (json.dumps({"auths": None}), "its auths is no object", None),
        (
            b64(json.dumps(auths(GOOD))),
            "it is encoded in base64 twice, and the kubelet decodes it once",
            LOGIN,
        ),
        (
            json.dumps({"auths": {"nvcr.io": {}}, "credsStore": "desktop"}),
            (
                "credentials are left to a helper program (credsStore, credHelpers), which the kubelet does not ask\n"
                "nvcr.io: its entry has no credentials"
            ),
            None,
        ),
        # a key
        (
            json.dumps(auths(GOOD, "https://nvcr.io/v2/")),
            (
                "nvcr.io: the key 'https://nvcr.io/v2/' is not as clients look for it: it is a URL (https://) and not "
                "a registry's name and it holds the API's path /v2/"
            ),
            LOGIN,
        ),
        (
            json.dumps(auths(GOOD, "nvcr.io/")),
            "nvcr.io: the key 'nvcr.io/' is not as clients look for it: it ends with a slash",
            LOGIN,
        ),
        # an entry
        (json.dumps(auths(b64(PAIR))), "nvcr.io: its entry is no object", None),
        (json.dumps(auths({"auth": 7})), "nvcr.io: its auth is no text", None),
        (
            json.dumps(auths({"auth": PAIR})),
            "nvcr.io: its auth is no base64 (it seems to be user:password as it is)",
            None,
        ),
        (json.dumps(auths({"auth": "%%%"})), "nvcr.io: its auth is no base64", None),
        (json.dumps(auths({"auth": b64(b64(PAIR))})), "nvcr.io: its auth is encoded in base64 twice", None),
        (json.dumps(auths({"auth": b64(KEY)})), "nvcr.io: its auth is not of the form user:password", None),
        (
            json.dumps(auths({"auth": b64(PAIR + "\n")})),
            "nvcr.io: the password ends with a newline, which belongs to the file it came from",
            Login(USER, KEY + "\n"),
        ),
        (
            json.dumps(auths({"username": USER, "password": KEY + "\n"})),
            "nvcr.io: the password ends with a newline, which belongs to the file it came from",
            Login(USER, KEY + "\n"),
        ),
        (
            json.dumps(auths({"auth": b64(PAIR), "username": USER, "password": "old"})),
            "nvcr.io: its auth holds other credentials than its username and password",
            LOGIN,
        ),
        (
            json.dumps(auths({"identitytoken": "t"})),
            "nvcr.io: its entry has a login token only, which the kubelet does not know",
            None,
        ),
        (
            json.dumps(auths({"username": "oauthtoken", "password": KEY})),
            (
                "nvcr.io: the user name is not $oauthtoken (NVIDIA's registry wants it literally; in a shell or a "
                "template the $ is easily lost)"
            ),
            Login("oauthtoken", KEY),
        ),
        (json.dumps(auths({"username": USER})), "nvcr.io: the password is empty", Login(USER, "")),
        (
            json.dumps({"auths": {"nvcr.io": GOOD, "https://nvcr.io": GOOD}}),
            (
                "nvcr.io has more than one entry\n"
                "nvcr.io: the key 'https://nvcr.io' is not as clients look for it: it is a URL (https://) and not a "
                "registry's name"
            ),
            LOGIN,
        ),
    ],
)
def test_faulty(text, faults, login):
    config = docker_config.read(text, NOW)
    assert "\n".join(config.all_faults()) == faults
    assert next((one.login for one in config.entries), None) == login
    for line in config.all_faults():
        assert KEY not in line
        assert b64(PAIR) not in line


def test_very_many_entries_are_judged_at_once():
    """An object of the API server may have a megabyte."""
    text = json.dumps({"auths": {"r%d.example.org" % number: {} for number in range(20_000)}})
    started = time.process_time()
    assert len(docker_config.read(text, NOW).entries) == 20_000
    assert time.process_time() - started < 3


def test_a_key_that_is_a_secret_is_not_shown():
    config = docker_config.read(json.dumps(auths(GOOD, "$oauthtoken:" + KEY)), NOW)
    assert config.entries[0].place == ""
    assert KEY not in "".join(config.all_faults()) + repr(config)


def test_the_old_form():
    config = docker_config.read(json.dumps({"nvcr.io": GOOD}), NOW, old_form=True)
    assert (config.all_faults(), config.entries[0].login) == ([], LOGIN)


def test_written_is_read():
    text = docker_config.write({docker_config.key_of("docker.io"): docker_config.entry_of(LOGIN)}, {"proxies": {}})
    config = docker_config.read(text.encode(), NOW)
    assert [(one.key, one.place, one.login) for one in config.entries] == [
        ("https://index.docker.io/v1/", "docker.io", LOGIN)
    ]
    assert (config.rest, config.all_faults()) == ({"proxies": {}}, [])
    assert docker_config.write({"a": 1, "b": 2}, {}) == docker_config.write({"b": 2, "a": 1}, {})
