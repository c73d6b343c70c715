# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import base64
import json

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.registry.login import (
    Login,
    expires,
    faults_of,
)

NOW = 1_800_000_000.0
USER = "$oauthtoken"
KEY = "nvapi-" + "A1-_" * 16
OLD_KEY = base64.b64encode(b"k3j4h5k3j4h5k3j4h5k3j4:0f0e0d0c-1111-2222-3333-444455556666").decode()


def packed(claims):
    return base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")


def jwt(exp):
    return ".".join((packed({"alg": "ES256"}), packed({"exp": exp}), "c2ln"))


@pytest.mark.parametrize(
    ("registry", "user", "password", "faults"),
    [
        ("nvcr.io", USER, KEY, []),
        ("nvcr.io/nvidia", USER, KEY, []),
        ("nvcr.io", "oauthtoken", KEY, ["user_nvidia"]),
        ("nvcr.io", "", KEY, ["user_empty"]),
        ("nvcr.io", "\\$oauthtoken", KEY, ["user_nvidia"]),
        ("nvcr.io", "$$oauthtoken", KEY, ["user_nvidia"]),
        ("nvcr.io", "'$oauthtoken'", KEY, ["user_nvidia"]),
        ("nvcr.io", "someone@example.org", KEY, ["user_nvidia"]),
        ("nvcr.io", USER, "", ["password_empty"]),
        ("nvcr.io", USER, KEY[:-20], ["key_short"]),
        ("nvcr.io", USER, "nvapi-", ["key_characters"]),
        ("nvcr.io", USER, "'%s'" % KEY, ["password_quoted"]),
        ("nvcr.io", USER, '"%s"' % KEY, ["password_quoted"]),
        ("nvcr.io", USER, "\u201c%s\u201d" % KEY, ["password_quoted"]),
        ("nvcr.io", USER, KEY + "\n", ["password_newline"]),
        ("nvcr.io", USER, KEY + "\r\n", ["password_newline"]),
        ("nvcr.io", USER, KEY[:20] + "\n" + KEY[20:], ["password_control"]),
        ("nvcr.io", USER, " " + KEY, ["password_blanks"]),
        ("nvcr.io", USER, "$NGC_API_KEY", ["password_unfilled"]),
        ("nvcr.io", USER, "${NGC_API_KEY}", ["password_unfilled"]),
        ("nvcr.io", USER, "{{ vault_nvcr_key }}", ["password_unfilled"]),
        ("nvcr.io", USER, "<your key>", ["password_unfilled"]),
        ("nvcr.io", USER, "$" + KEY, ["key_before"]),
        ("nvcr.io", USER, KEY[:30] + "$" + KEY[30:], ["key_characters"]),
        ("nvcr.io", USER, KEY + KEY, ["key_twice"]),
        ("nvcr.io", USER, base64.b64encode(KEY.encode()).decode(), ["key_encoded"]),
        ("nvcr.io", USER, OLD_KEY, ["key_old"]),
        ("nvcr.io", USER, "hunter22", ["key_form"]),
        ("nvcr.io", USER, "$ANSIBLE_VAULT;1.1;AES256\n3962", ["password_vault"]),
        ("nvcr.io", USER, jwt(NOW - 7200), ["key_form", "expired"]),
        ("head:5000", USER, "nvapi-short", []),
        ("registry.example.org", "robot", "'quoted'", ["password_quoted"]),
        ("registry.example.org", "robot", "pa$$w0rd", []),
        ("registry.example.org", "robot", "$ecret", ["password_unfilled"]),
        ("registry.example.org", "robot", "with space", []),
        ("registry.example.org", "robot", "newline\n", ["password_newline"]),
        ("registry.example.org", "ro:bot", "x", ["user_colon"]),
        ("registry.example.org", "robot ", "x", ["user_blanks"]),
        ("registry.example.org", "robot", jwt(NOW - 7200), ["expired"]),
        ("registry.example.org", "robot", jwt(NOW + 7200), ["expires"]),
        ("1.dkr.ecr.eu-west-1.amazonaws.com", "AWS", packed({"expiration": NOW - 1}), ["expired"]),
        ("1.dkr.ecr.eu-west-1.amazonaws.com", "AWS", packed({"expiration": NOW + 1}), ["expires"]),
    ],
)
def test_faults(registry, user, password, faults):
    found = faults_of(registry, Login(user, password), NOW)
    assert [fault.id for fault in found] == faults
    for fault in found:
        assert password not in fault.text or not password


@pytest.mark.parametrize(
    ("registry", "password"),
    [
        ("nvcr.io", KEY[:-20]),
        ("nvcr.io", OLD_KEY),
        ("registry.example.org", "'quoted'"),
        ("registry.example.org", "$ecret"),
        ("registry.example.org", jwt(NOW + 7200)),
    ],
)
def test_what_is_only_unusual(registry, password):
    assert not any(fault.certain for fault in faults_of(registry, Login(USER, password), NOW))


def test_expires():
    assert expires(jwt(5)) == 5
    assert [expires(text) for text in ("", "a.b.c", packed({"expiration": "soon"}), packed([1]), "x" * 70)] == [
        None
    ] * 5


def test_a_login_is_not_shown():
    assert KEY not in repr(Login(USER, KEY)) + str(Login(USER, KEY))
