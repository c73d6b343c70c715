# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Defaults, argument specs and the settings' template say the same."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import re

import jinja2
import pytest
import yaml
from ansible.plugins.filter.core import FilterModule
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import BadInput
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import settings

ROLES = pathlib.Path(__file__).resolve().parents[3] / "roles"
WITH_DEFAULTS = sorted(path.parents[1].name for path in ROLES.glob("*/defaults/main.yml"))


def read(*parts):
    return yaml.safe_load(ROLES.joinpath(*parts).read_text())


@pytest.mark.parametrize("role", WITH_DEFAULTS)
def test_argument_specs_mirror_defaults(role):
    defaults = read(role, "defaults", "main.yml")
    options = read(role, "meta", "argument_specs.yml")["argument_specs"]["main"]["options"]
    assert sorted(options) == sorted(defaults)
    for name, value in defaults.items():
        assert options[name].get("description"), name
        if options[name].get("required") or (isinstance(value, str) and "{{" in value):
            continue  # depends on other settings
        assert options[name].get("default") == value, name


@pytest.mark.parametrize("role", WITH_DEFAULTS)
def test_secrets_are_marked(role):
    options = read(role, "meta", "argument_specs.yml")["argument_specs"]["main"]["options"]
    for name, option in options.items():
        assert bool(option.get("no_log")) is name.endswith("password"), name


def rendered(**other):
    """The settings file as the template makes it of the defaults."""
    source = (ROLES / "controller/templates/settings.yml.j2").read_text()
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined)
    environment.filters.update(FilterModule().filters())
    values = {**read("job_recovery", "defaults", "main.yml"), **other}
    private = {name: "/etc/job-recovery/" + name for name in re.findall(r"__controller_\w+", source)}
    template = environment.from_string(source)
    return yaml.safe_load(template.render(ansible_managed="Ansible managed", **values, **private))


def shape(data):
    return {key: shape(value) if isinstance(value, dict) else None for key, value in data.items()}


def test_the_template_writes_every_setting():
    data = rendered(job_recovery_cluster="c", job_recovery_partitions=["p"], job_recovery_namespaces=["n"])
    assert shape(data) == shape(dataclasses.asdict(settings.parse(data)))


def test_the_defaults_of_roles_and_code_are_the_same():
    data = rendered(job_recovery_cluster="c", job_recovery_partitions=["p"], job_recovery_kubernetes=False)
    made, coded = settings.parse(data), settings.Settings(cluster="c")
    signs = dataclasses.replace(coded.kubernetes, node_signs=made.kubernetes.node_signs)  # of the sites' agents
    assert made.kubernetes == signs
    nodes = dataclasses.replace(coded.nodes, key_file=made.nodes.key_file)  # files that the installer makes
    power = dataclasses.replace(coded.power, credentials_file=made.power.credentials_file)
    assert (made.nodes, made.power) == (nodes, power)
    plain = ("mode", "jobs", "job_ends", "stop_file", "state_dir")
    for part in (*plain, "slurm", "agents", "ledger", "limits", "loki", "notify"):
        assert getattr(made, part) == getattr(coded, part)


@pytest.mark.parametrize(
    ("sign", "wrong"),
    [
        ({"condition": "KernelDeadlock", "status": "True", "remediation": "reboot_node", "grace": 60}, ""),
        ({"taint": "vendor.example/broken"}, ""),
        ({"condition": "KernelDeadlock", "taint": "x"}, "name a condition"),
        ({}, "name a condition"),
        ({"taint": "x", "grace": 5}, "name a condition"),
        ({"condition": "Ready", "status": "False"}, "Ready is looked at anyway"),
        ({"condition": "X", "remediation": "requeue_job"}, "remediation of X"),
        ({"condition": "X", "remedy": "report"}, "unknown kubernetes.node_signs.remedy"),
        ("KernelDeadlock", "is no mapping"),
    ],
)
def test_signs_of_sick_nodes(sign, wrong):
    data = rendered(job_recovery_cluster="c", job_recovery_kubernetes_node_signs=[sign], job_recovery_slurm=False)
    data["scope"]["namespaces"] = ["n"]
    with pytest.raises(BadInput, match=wrong) if wrong else contextlib.nullcontext():
        settings.parse(data)


@pytest.mark.parametrize(
    ("row", "wrong"),
    [
        ({"kind": "FluxJob", "care": "watch", "after": 60}, ""),
        ({"kind": "FluxJob"}, ""),
        ({"kind": "FluxJob", "care": "rerun"}, "'FluxJob' is 'rerun'"),
        ({"care": "watch"}, "name a kind"),
        ({"kind": "FluxJob", "after": -1}, "after is -1"),
        ({"kind": "FluxJob", "group": "flux.io", "resource": "fluxjobs", "label": "flux.io/job-name"}, ""),
        ({"kind": "FluxJob", "group": "flux.io"}, "'flux.io', ''"),
        ({"kind": "FluxJob", "resource": "fluxjobs"}, "'', 'fluxjobs'"),
        ({"kind": "FluxJob", "group": "flux.io", "resource": "fluxjobs/status"}, "'fluxjobs/status'"),
        ({"kind": "FluxJob", "group": "a/../b", "resource": "fluxjobs"}, "'a/../b'"),
        ({"kind": "FluxJob", "label": "a=b,c"}, "'a=b,c' is no label"),
    ],
)
def test_owners_of_jobs(row, wrong):
    data = rendered(job_recovery_cluster="c", job_recovery_kubernetes_owners=[row], job_recovery_slurm=False)
    data["scope"]["namespaces"] = ["n"]
    with pytest.raises(BadInput, match=wrong) if wrong else contextlib.nullcontext():
        settings.parse(data)


@pytest.mark.parametrize("value", ['a"b', "{{ x }}", "a: b", "- x", "null", "yes", "'", "a\nb"])
def test_text_stays_text(value):
    data = rendered(job_recovery_cluster="c", job_recovery_partitions=[value], job_recovery_kubernetes="false")
    assert data["scope"]["partitions"] == [value]
    assert data["kubernetes"]["kubeconfig"] == ""
