# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run a module of this collection inside the process of ansible-playbook.

The modules that work from the controller have an action plugin of their name (`plugins/action`), and all of those are
the one below. As a module, a task costs 0.6 s on the controller to pack, unpack and import, and a recovery has dozens
of them; in-process it costs what its work costs. The module's own `SPEC` is validated in the same way, and `run` is the
same function. (One redirected action in `meta/runtime.yml` would do the same, but tools for documentation and linting
then take the modules for missing.)

A module that waits for a person has `run_and_tell(params, check_mode, tell)`; what it tells is shown at once.

Where the task is not local, becomes another user, has an environment of its own or runs asynchronously, it is run as
the ordinary module.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any, Optional

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.module_utils.common.parameters import remove_values
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import RecoveryError

_MODULES = "ansible_collections.mission_control.job_recovery.plugins.modules"
_RELATIONS = ("mutually_exclusive", "required_together", "required_one_of", "required_if", "required_by")


class ActionModule(ActionBase):
    """The action plugin of every module that has one in `plugins/action`."""

    _supports_async = True
    _supports_check_mode = True
    _supports_diff = True

    def run(self, tmp: Optional[str] = None, task_vars: Optional[dict[str, Any]] = None) -> dict[str, Any]:
        """Run the task's module; see the module's own documentation for arguments and result."""
        super().run(tmp, task_vars)
        if not self._is_local():
            return self._execute_module(
                module_name=self._task.action, task_vars=task_vars, wrap_async=self._task.async_val
            )
        module = importlib.import_module("%s.%s" % (_MODULES, self._task.action.rpartition(".")[2]))
        check_mode = bool(self._task.check_mode)
        if check_mode and not module.SPEC.get("supports_check_mode"):
            return {"skipped": True, "msg": "%s does not support check mode" % self._task.action}
        run = module.run
        if hasattr(module, "run_and_tell"):
            run = functools.partial(module.run_and_tell, tell=Display().display)
        return _run(module.SPEC, run, self._task.args, check_mode)

    def _is_local(self) -> bool:
        task = self._task
        return not (
            self._connection.transport != "local"
            or self._connection.become
            or task.async_val
            or any(task.environment or ())
        )


def _run(spec: dict[str, Any], run: Any, arguments: dict[str, Any], check_mode: bool) -> dict[str, Any]:
    relations = {name: spec[name] for name in _RELATIONS if name in spec}
    validated = ArgumentSpecValidator(spec["argument_spec"], **relations).validate(arguments)
    secrets = validated._no_log_values
    if validated.error_messages:
        return remove_values({"failed": True, "msg": "; ".join(validated.error_messages)}, secrets)
    try:
        result = run(validated.validated_parameters, check_mode)
    except RecoveryError as exc:
        result = {**exc.fields, "failed": True, "msg": str(exc)}
    result.setdefault("changed", False)
    return remove_values(result, secrets)
