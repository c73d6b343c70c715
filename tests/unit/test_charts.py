# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The collection's chart and its role controller make the same account; tests/lab compares what a real helm renders."""

from __future__ import annotations

import json
import pathlib
import re

import yaml
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes import account, models, rbac

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "job-recovery"


def read(name):
    return yaml.safe_load((CHART / name).read_text())


def template(name):
    return (CHART / "templates" / name).read_text()


def test_the_rights_are_those_of_the_role():
    everywhere, in_scope = [each for each in account.objects("ns", "a", ["x"]) if each["kind"] == "ClusterRole"]
    assert read("files/rules.yaml") == {"everywhere": everywhere["rules"], "namespaces": in_scope["rules"]}


def test_the_chart_makes_the_objects_of_the_role():
    """Each kind with its name; the namespace is made by helm --create-namespace."""
    made = [
        (kind, name.strip())
        for file in ("account.tpl", "rights.tpl")
        for kind, name in re.findall(r"^kind: (\S+)$(?:\n.*?)*?^  name: (.*)$", template(file), re.MULTILINE)
    ]
    names = {"{{ $name }}": rbac.NAME, "{{ .Values.account.name }}": "job-recovery"}
    values = read("values.yaml")
    assert values["account"]["name"] == "job-recovery"
    found = [(kind, re.sub(r"\{\{.*?\}\}", lambda match: names[match.group()], name)) for kind, name in made]
    wanted = account.objects("ns", "job-recovery", ["x"])[1:]
    assert found == [(each["kind"], each["metadata"]["name"]) for each in wanted]
    assert values["name"] == rbac.NAME


def test_the_policy_knows_the_names_that_recovery_writes():
    policy = template("policy.tpl")
    for name in (models.NODE_ANNOTATION, models.JOB_ANNOTATION, models.OUT_OF_SERVICE):
        assert "'%s'" % name in policy


def test_nothing_is_allowed_and_no_policy_is_made_by_default():
    values = read("values.yaml")
    assert values["namespaces"] == []
    assert values["admissionPolicy"] == {"enabled": False}
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert sorted(key for key in schema["properties"] if key != "global") == sorted(values)
    assert schema["properties"]["namespaces"]["minItems"] == 1


def test_its_version_is_the_collections():
    version = yaml.safe_load((ROOT / "galaxy.yml").read_text())["version"]
    chart = read("Chart.yaml")
    assert (chart["version"], chart["appVersion"]) == (version, version)
