# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import BadInput
from ansible_collections.mission_control.job_recovery.plugins.module_utils.registry.reference import (
    Reference,
    covers,
    is_version,
    normalise,
    parse_chart,
    parse_image,
    parse_place,
)

DIGEST = "sha256:" + "a" * 64


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("busybox", Reference("docker.io", "library/busybox", "latest")),
        ("bitnami/nginx:1.2", Reference("docker.io", "bitnami/nginx", "1.2")),
        ("index.docker.io/library/busybox:1", Reference("docker.io", "library/busybox", "1")),
        ("nvcr.io/nvidia/cuda:12.9.1-base", Reference("nvcr.io", "nvidia/cuda", "12.9.1-base")),
        ("head:5000/lab/busybox:1", Reference("head:5000", "lab/busybox", "1")),
        ("localhost/x", Reference("localhost", "x", "latest")),
        ("[::1]:5000/x:1", Reference("[::1]:5000", "x", "1")),
        ("NVCR.io/nvidia/cuda:1", Reference("nvcr.io", "nvidia/cuda", "1")),
        ("nvcr.io/a/b@" + DIGEST, Reference("nvcr.io", "a/b", "", DIGEST)),
        ("nvcr.io/a/b:1@" + DIGEST, Reference("nvcr.io", "a/b", "1", DIGEST)),
    ],
)
def test_images(text, reference):
    assert parse_image(text) == reference


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("https://nvcr.io/nvidia/cuda:1", "URL"),
        ("nvcr.io/Nvidia/cuda:1", "repository"),
        ("nvcr.io/nvidia/cuda:", "tag"),
        ("nvcr.io/nvidia/cuda:1 2", "tag"),
        ("nvcr.io/nvidia/cuda@sha256:abc", "digest"),
        ("nvcr.io/", "repository"),
        ("", "repository"),
        ("nvcr.io:99999999/x", "registry"),
        ("nvcr.io/x/../y:1", "repository"),
    ],
)
def test_no_images(text, part):
    with pytest.raises(BadInput, match=part):
        parse_image(text)


@pytest.mark.parametrize(
    ("arguments", "reference"),
    [
        (("oci://nvcr.io/x/chart", "1.2.3"), Reference("nvcr.io", "x/chart", "1.2.3")),
        (("oci://nvcr.io/x/chart", "1.2.3+b.5"), Reference("nvcr.io", "x/chart", "1.2.3_b.5")),
        (("oci://nvcr.io/x/chart:1.2.3",), Reference("nvcr.io", "x/chart", "1.2.3")),
        (("oci://nvcr.io/x/chart",), Reference("nvcr.io", "x/chart")),
        (("oci://nvcr.io/x/chart", "v1.2.3", DIGEST), Reference("nvcr.io", "x/chart", "v1.2.3", DIGEST)),
    ],
)
def test_charts(arguments, reference):
    assert parse_chart(*arguments) == reference


@pytest.mark.parametrize(
    "arguments",
    [
        ("nvcr.io/x/chart", "1.2.3"),
        ("https://nvcr.io/x/chart", "1.2.3"),
        ("oci://nvcr.io/x/chart", "^1.2"),
        ("oci://nvcr.io/x/chart", "1.2"),
        ("oci://nvcr.io/x/chart", "1.2.3", "abc"),
        ("oci://nvcr.io", "1.2.3"),
    ],
)
def test_no_charts(arguments):
    with pytest.raises(BadInput):
        parse_chart(*arguments)


def test_a_url_with_credentials_is_not_repeated():
    for parse in (parse_image, parse_chart, parse_place):
        with pytest.raises(BadInput) as caught:
            parse("https://user:hunter22@nvcr.io/x")
        assert "hunter22" not in str(caught.value)


@pytest.mark.parametrize(
    ("key", "place", "words"),
    [
        ("nvcr.io", "nvcr.io", ""),
        ("https://index.docker.io/v1/", "docker.io", ""),
        ("docker.io", "docker.io", ""),
        ("head:5000", "head:5000", ""),
        ("harbor.example.org/team/a", "harbor.example.org/team/a", ""),
        ("*.example.org", "*.example.org", ""),
        ("https://nvcr.io/v2/", "nvcr.io", "URL.*/v2/"),
        ("https://nvcr.io/v1/", "nvcr.io", "URL.*/v1/"),
        ("https://nvcr.io/v2", "nvcr.io", "URL.*/v2/"),
        ("https://nvcr.io/v2/nvidia", "nvcr.io/nvidia", "URL.*/v2/"),
        ("https://nvcr.io", "nvcr.io", "URL"),
        ("http://nvcr.io", "nvcr.io", "URL"),
        ("oci://nvcr.io", "nvcr.io", "URL"),
        ("nvcr.io/", "nvcr.io", "slash"),
        ("nvcr.io/v2/", "nvcr.io", "/v2/"),
        ("NVCR.IO", "nvcr.io", "capital"),
        (" nvcr.io\n", "nvcr.io", "blanks"),
        ("", "", "no registry"),
        ("nvcr.io nvcr.io", "", "no registry"),
        ("https://user:pw@nvcr.io", "", "no registry"),
    ],
)
def test_keys(key, place, words):
    found, changes = normalise(key)
    assert found == place
    if not words:
        assert parse_place(key) == place
        return
    with pytest.raises(BadInput, match=words):
        parse_place(key)
    assert changes


@pytest.mark.parametrize(
    ("place", "name", "answer"),
    [
        ("nvcr.io", "nvcr.io/nvidia/cuda", True),
        ("nvcr.io/nvidia", "nvcr.io/nvidia/cuda", True),
        ("nvcr.io/nvidia", "nvcr.io/nvidia", True),
        ("nvcr.io/nvid", "nvcr.io/nvidia/cuda", False),
        ("nvcr.io", "xnvcr.io/nvidia/cuda", False),
        ("*.example.org", "a.example.org/x", True),
        ("*.example.org", "a.b.example.org/x", False),
        ("head:5000", "head/x", False),
    ],
)
def test_covers(place, name, answer):
    assert covers(place, name) is answer


def test_versions():
    assert [is_version(tag) for tag in ("1.2.3", "v1.2.3-rc.1", "1.2.3_b", "latest", "1.2", "01.2.3")] == [
        True,
        True,
        True,
        False,
        False,
        False,
    ]
