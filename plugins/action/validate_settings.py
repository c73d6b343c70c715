# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compares settings with what the roles' argument_specs.yml say, one sentence a mistake; see the module of this name.

Ansible does the same before each role, and then prints the whole specification: some hundred lines, the mistake first.
"""

from __future__ import annotations

import pathlib
from typing import Any, Mapping, Optional

import yaml
from ansible.errors import AnsibleActionFail, AnsibleError
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.module_utils.common.parameters import remove_values
from ansible.plugins.action import ActionBase

_ROLES = pathlib.Path(__file__).resolve().parents[2] / "roles"


class ActionModule(ActionBase):
    """The action `validate_settings`."""

    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: Optional[str] = None, task_vars: Optional[dict[str, Any]] = None) -> dict[str, Any]:
        """Run the task; see the module's documentation for arguments and result."""
        super().run(tmp, task_vars)
        _validated, options = self.validate_argument_spec(
            argument_spec={"roles": {"type": "list", "elements": "str", "required": True}}
        )
        mistakes = []
        for role in options["roles"]:
            for name, spec in _options(role).items():
                mistakes += self._mistakes(name, spec, task_vars or {})
        if mistakes:
            return {"failed": True, "mistakes": mistakes, "msg": "\n".join(["These settings cannot be:", *mistakes])}
        return {"changed": False, "mistakes": []}

    def _mistakes(self, name: str, spec: Mapping[str, Any], task_vars: Mapping[str, Any]) -> list[str]:
        if name not in task_vars:
            return ["- %s: it has no value, and needs one" % name] if spec.get("required") else []
        try:
            value = self._templar.template(task_vars[name])
        except AnsibleError:
            return []  # the role may know a variable that this one is made of; what is wrong shows there
        validated = ArgumentSpecValidator({name: dict(spec)}).validate(
            {name: value}, validate_role_argument_spec=True
        )
        secrets = set(validated._no_log_values)
        if spec.get("no_log") and isinstance(value, str):
            secrets.add(value)
        return ["- %s: %s" % (name, remove_values(text, secrets)) for text in validated.error_messages]


def _options(role: str) -> Mapping[str, Any]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the other one would take seconds for many hosts
    try:
        text = (_ROLES / role / "meta/argument_specs.yml").read_bytes()
        return yaml.load(text, Loader=loader)["argument_specs"]["main"].get("options", {})  # noqa: S506 - safe ones
    except (OSError, yaml.YAMLError, KeyError):
        raise AnsibleActionFail("validate_settings: there is no role %s with a specification" % role) from None
