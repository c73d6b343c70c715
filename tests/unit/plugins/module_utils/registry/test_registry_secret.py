# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module registry_secret against a small API server: every kind of secret that may stand there already."""

from __future__ import annotations

import base64
import json

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import BadInput, RecoveryError
from ansible_collections.mission_control.job_recovery.plugins.module_utils.registry import pull_secret
from ansible_collections.mission_control.job_recovery.plugins.module_utils.registry.secret import SPEC, run
from ansible_collections.mission_control.job_recovery.tests.unit.plugins.module_utils.kubernetes.api_server import (
    ApiServer,
    status,
)

USER = "$oauthtoken"
KEY = "nvapi-" + "k" * 64
PATH = "/api/v1/namespaces/team/secrets/pull"
TYPE = pull_secret.TYPE
OTHER = {"auth": base64.b64encode(b"robot:hunter22hunter22").decode(), "email": "robot@example.org"}


def b64(text):
    return base64.b64encode(text.encode()).decode()


PAIR = b64("%s:%s" % (USER, KEY))


@pytest.fixture
def api():
    server = ApiServer()
    server.put("/api/v1/namespaces/team", {"metadata": {"name": "team"}})
    yield server
    server.close()


@pytest.fixture
def ask(api, tmp_path):
    kubeconfig = api.kubeconfig(tmp_path)

    def call(check_mode=False, **given):
        defaults = {name: option.get("default") for name, option in SPEC["argument_spec"].items()}
        wanted = {"name": "pull", "namespaces": ["team"], "registry": "nvcr.io", "password": KEY}
        return run({**defaults, **wanted, "kubeconfig": kubeconfig, **given}, check_mode)

    return call


def stand(api, config, kind=TYPE, owned=True, path=PATH, key=pull_secret.KEY, **more):
    """Put a secret there. `config` is its content: an object, or a text as it is."""
    text = config if isinstance(config, str) else json.dumps(config)
    labels = {pull_secret.LABEL: pull_secret.OWNER, "team": "a"} if owned else {"team": "a"}
    secret = {"kind": "Secret", "type": kind, "metadata": {"labels": labels}, "data": {key: b64(text)}}
    return api.put(path, {**secret, **more})


def content(api, path=PATH):
    return json.loads(base64.b64decode(api.see(path)["data"][pull_secret.KEY]))


def writes(api):
    return [request for request in api.requests if not request.startswith("GET")]


def refusal(ask, **given):
    with pytest.raises(RecoveryError) as caught:
        ask(**given)
    assert KEY not in str(caught.value) + json.dumps(caught.value.fields)
    return caught.value


def test_made_where_there_is_none(api, ask):
    result = ask()
    secret = api.see(PATH)
    assert (secret["type"], secret["metadata"]["labels"]) == (TYPE, {pull_secret.LABEL: pull_secret.OWNER})
    assert content(api) == {"auths": {"nvcr.io": {"username": USER, "password": KEY, "auth": PAIR}}}
    assert result["changed"]
    assert result["diff"]["before"] == {"team": {}}
    assert result["diff"]["after"]["team"]["registries"] == {"nvcr.io": "as given"}
    assert ask()["changed"] is False
    assert len(writes(api)) == 1


def test_nothing_secret_is_returned(api, ask):
    stand(api, {"auths": {"nvcr.io": {"auth": b64(USER + ":old-password-old")}, "other.example.org": OTHER}})
    shown = json.dumps(ask())
    for secret in (KEY, PAIR, "old-password-old", OTHER["auth"], "robot", "hunter22"):
        assert secret not in shown


def test_check_mode_writes_nothing_and_tells_the_same(api, ask):
    before = ask(check_mode=True)
    assert writes(api) == []
    assert ask() == before


def test_check_mode_knows_that_the_namespace_is_missing(api, ask):
    assert "there is no namespace lost" in str(refusal(ask, namespaces=["lost"], check_mode=True))


@pytest.mark.parametrize(
    "entry",
    [
        {"auth": PAIR},
        {"auth": PAIR.rstrip("=")},
        {"username": USER, "password": KEY},
        {"username": USER, "password": KEY, "auth": PAIR, "email": "a@example.org"},
    ],
)
def test_equal_forms_are_no_change(api, ask, entry):
    stand(api, {"auths": {"nvcr.io": entry, "other.example.org": OTHER}})
    assert ask()["changed"] is False
    assert writes(api) == []


@pytest.mark.parametrize(
    ("config", "fault"),
    [
        ({"nvcr.io": {"auth": PAIR}}, "no level auths"),
        ({"auths": {"nvcr.io": {"auth": b64(USER + ":" + KEY + "\n")}}}, "newline"),
        ({"auths": {"nvcr.io": {"auth": b64(PAIR)}}}, "encoded in base64 twice"),
        (b64(json.dumps({"auths": {"nvcr.io": {"auth": PAIR}}})), "encoded in base64 twice"),
        ({"auths": {"https://nvcr.io/v2/": {"auth": PAIR}}}, "'https://nvcr.io/v2/'"),
        ({"auths": {"nvcr.io": {"auth": PAIR}, "https://nvcr.io": {"auth": b64("a:b")}}}, "more than one entry"),
        ({"auths": {"nvcr.io": {"auth": PAIR, "username": "x", "password": "y"}}}, "other credentials"),
        ({"Auths": {"nvcr.io": {"auth": PAIR}}}, "small letters"),
        ({"auths": []}, "auths is no object"),
        ({"auths": {"nvcr.io": {}}, "credsStore": "desktop"}, "helper"),
    ],
)
def test_faulty_ones_are_named_and_repaired(api, ask, config, fault):
    stand(api, config)
    result = ask()
    assert result["changed"]
    assert fault in "\n".join(result["results"][0]["found"])
    entry = {"username": USER, "password": KEY, "auth": PAIR}
    assert content(api)["auths"] == {"nvcr.io": entry}
    assert api.see(PATH)["metadata"]["labels"] == {pull_secret.LABEL: pull_secret.OWNER, "team": "a"}
    assert ask()["changed"] is False


def test_others_are_kept_exactly(api, ask):
    stand(api, {"auths": {"https://other.example.org": OTHER, "nvcr.io": {"auth": b64("a:b")}}, "proxies": {"x": 1}})
    ask()
    assert content(api)["auths"]["https://other.example.org"] == OTHER
    assert content(api)["proxies"] == {"x": 1}


def test_others_are_kept_also_from_the_wrong_level(api, ask):
    stand(api, {"other.example.org": OTHER})
    ask()
    assert content(api)["auths"]["other.example.org"] == OTHER


def test_others_go_by_option(api, ask):
    stand(api, {"auths": {"other.example.org": OTHER, "nvcr.io": {"auth": PAIR}}, "credsStore": "desktop"})
    assert ask(others="remove")["changed"]
    assert list(content(api)["auths"]) == ["nvcr.io"]
    assert "credsStore" not in content(api)
    assert ask(others="remove")["changed"] is False


def test_a_closer_entry_is_told(api, ask):
    stand(api, {"auths": {"nvcr.io": {"auth": PAIR}, "nvcr.io/nvidia": {"auth": PAIR}}})
    result = ask()
    assert result["changed"] is False
    assert result["results"][0]["found"] == ["nvcr.io/nvidia has an entry of its own, which comes first"]


@pytest.mark.parametrize("text", ["no JSON", "[]", ""])
def test_unreadable_content_is_replaced_only_by_option(api, ask, text):
    stand(api, text)
    assert "others=remove" in str(refusal(ask))
    assert writes(api) == []
    assert ask(others="remove")["changed"]
    assert list(content(api)["auths"]) == ["nvcr.io"]


def test_somebody_elses_is_left_alone(api, ask):
    stand(api, {"auths": {"nvcr.io": {"auth": b64("a:b")}}}, owned=False)
    caught = refusal(ask)
    assert "somebody else's" in str(caught)
    assert caught.fields["results"][0]["status"] == "refused"
    assert writes(api) == []
    assert ask(adopt=True)["changed"]
    assert api.see(PATH)["metadata"]["labels"][pull_secret.LABEL] == pull_secret.OWNER


def test_somebody_elses_that_is_right_is_right(api, ask):
    stand(api, {"auths": {"nvcr.io": {"auth": PAIR}}}, owned=False)
    assert ask()["changed"] is False
    assert ask(adopt=True)["changed"]
    assert content(api) == {"auths": {"nvcr.io": {"auth": PAIR}}}
    assert ask(adopt=True)["changed"] is False


@pytest.mark.parametrize(
    ("kind", "key", "config", "words"),
    [
        (pull_secret.OLD_TYPE, pull_secret.OLD_KEY, {"nvcr.io": {"auth": PAIR}, "o.org": OTHER}, "old type"),
        ("Opaque", pull_secret.KEY, {"auths": {"nvcr.io": {"auth": PAIR}, "o.org": OTHER}}, "type is Opaque"),
    ],
)
def test_a_wrong_type_is_told_and_made_anew_by_option(api, ask, kind, key, config, words):
    stand(api, config, kind=kind, key=key)
    caught = refusal(ask)
    assert words in str(caught)
    assert "recreate=true" in str(caught)
    assert writes(api) == []
    assert ask(recreate=True)["changed"]
    assert api.see(PATH)["type"] == TYPE
    assert content(api)["auths"]["o.org"] == OTHER
    assert ask(recreate=True)["changed"] is False


def test_an_immutable_one_is_told_and_made_anew_by_option(api, ask):
    stand(api, {"auths": {"nvcr.io": {"auth": b64("a:b")}}}, immutable=True)
    assert "immutable" in str(refusal(ask))
    assert writes(api) == []
    assert ask(recreate=True)["changed"]
    assert "immutable" not in api.see(PATH)


def test_an_immutable_one_that_is_right_is_right(api, ask):
    stand(api, {"auths": {"nvcr.io": {"auth": PAIR}}}, immutable=True)
    assert ask()["changed"] is False


def test_missing_content_is_named(api, ask):
    api.put(PATH, {"type": TYPE, "metadata": {"labels": {pull_secret.LABEL: pull_secret.OWNER}}, "data": {"x": "eA=="}})
    result = ask()
    assert result["results"][0]["found"] == ["it has no .dockerconfigjson"]
    assert api.see(PATH)["data"]["x"] == "eA=="


def test_one_that_is_being_deleted_is_waited_for_by_the_caller(api, ask):
    secret = {"type": TYPE, "metadata": {"deletionTimestamp": "2026-11-30T11:00:00Z"}, "data": {}}
    api.put(PATH, secret)
    assert "being deleted" in str(refusal(ask))


def test_absent(api, ask):
    gone = {"state": "absent", "password": None}
    assert ask(**gone)["changed"] is False
    ask()
    ask(registry="other.example.org", username="robot", password="hunter22hunter22")
    assert sorted(content(api)["auths"]) == ["nvcr.io", "other.example.org"]
    assert ask(**gone, check_mode=True)["changed"]
    assert ask(**gone)["changed"]
    assert list(content(api)["auths"]) == ["other.example.org"]
    assert ask(**gone)["changed"] is False
    assert ask(**gone, registry="other.example.org")["changed"]
    assert api.see(PATH) is None


def test_absent_leaves_what_is_not_ours(api, ask):
    gone = {"state": "absent", "password": None}
    stand(api, {"auths": {"other.example.org": OTHER}}, owned=False)
    assert ask(**gone)["changed"] is False
    stand(api, {"auths": {"nvcr.io": {"auth": PAIR}}}, owned=False)
    assert "somebody else's" in str(refusal(ask, **gone))
    assert writes(api) == []


def test_a_change_in_between_is_seen(api, ask):
    stand(api, {"auths": {"nvcr.io": {"auth": b64("a:b")}}})

    def meddle():
        stand(api, {"auths": {"nvcr.io": {"auth": b64("a:b")}, "other.example.org": OTHER}})

    api.tell("PATCH", PATH, 0, None, before=meddle)
    assert ask()["changed"]
    assert sorted(content(api)["auths"]) == ["nvcr.io", "other.example.org"]


def test_one_that_goes_in_between_is_made(api, ask):
    stand(api, {"auths": {"nvcr.io": {"auth": b64("a:b")}}})
    api.tell("PATCH", PATH, 404, status(404, "NotFound"), before=lambda: api.take(PATH))
    assert ask()["changed"]
    assert list(content(api)["auths"]) == ["nvcr.io"]


def test_one_that_comes_in_between_is_seen(api, ask):
    def come():
        stand(api, {"auths": {"nvcr.io": {"auth": PAIR}}}, owned=False)

    api.tell("POST", "/api/v1/namespaces/team/secrets", 409, status(409, "AlreadyExists"), before=come)
    assert ask()["changed"] is False


def test_check_mode_without_the_right_to_see_namespaces(api, ask):
    api.tell("GET", "/api/v1/namespaces/team", 403, status(403, "Forbidden"))
    assert ask(check_mode=True)["changed"]


def test_every_namespace_has_its_own_answer(api, ask):
    collection = "/api/v1/namespaces/%s/secrets"
    api.tell("POST", collection % "missing", 404, status(404, "NotFound"))
    api.tell("POST", collection % "closed", 403, status(403, "Forbidden"))
    api.tell("POST", collection % "going", 403, status(403, "Forbidden"))
    api.put("/api/v1/namespaces/going", {"status": {"phase": "Terminating"}})
    caught = refusal(ask, namespaces=["missing", "closed", "going", "team", "team"])
    results = {one["name"]: one for one in caught.fields["results"]}
    assert [one["status"] for one in results.values()] == ["failed", "failed", "failed", "done"]
    assert "no namespace missing" in results["missing"]["why"]
    assert "RBAC" in results["closed"]["why"]
    assert "being deleted" in results["going"]["why"]
    assert caught.fields["changed"]
    assert list(content(api)["auths"]) == ["nvcr.io"]


def test_an_api_server_that_is_away_is_asked_once(api, ask):
    api.close()
    caught = refusal(ask, namespaces=["a", "b", "c"])
    assert ["not asked" in one["why"] for one in caught.fields["results"]] == [False, True, True]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"password": KEY + "\n"}, "newline"),
        ({"password": "'%s'" % KEY}, "quotation marks"),
        ({"password": ""}, "empty"),
        ({"username": "oauthtoken"}, "user name is not"),
        ({"registry": "https://nvcr.io/v2/"}, "write nvcr.io"),
        ({"namespaces": []}, "no namespace"),
    ],
)
def test_wrong_use_asks_nobody(api, ask, given, words):
    with pytest.raises(BadInput, match=words) as caught:
        ask(**given)
    assert KEY not in str(caught.value)
    assert api.requests == []


def test_what_is_only_unusual_is_a_warning(api, ask):
    result = ask(password=KEY[:30])
    assert result["changed"]
    assert "is it cut off?" in result["warnings"][0]


def test_docker_hub_is_written_under_its_own_key(api, ask):
    ask(registry="docker.io", username="robot", password="hunter22hunter22")
    assert list(content(api)["auths"]) == ["https://index.docker.io/v1/"]
    assert ask(registry="docker.io", username="robot", password="hunter22hunter22")["changed"] is False
