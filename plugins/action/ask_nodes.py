# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One command on many hosts by one task, over Ansible's own connections.

A task on each of a thousand hosts costs a process of ansible-playbook and 0.08 s of a core for each. Here one process
prepares one connection after another, as `ansible.executor.task_executor` does, and threads wait for their answers.
"""

from __future__ import annotations

import os
from typing import Any, Callable, Optional

from ansible import constants
from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.playbook.play_context import PlayContext
from ansible.plugins.action import ActionBase
from ansible.plugins.loader import become_loader, connection_loader
from ansible_collections.mission_control.job_recovery.plugins.module_utils.parallel import end_children, run_each
from ansible_collections.mission_control.job_recovery.plugins.modules.ask_nodes import SPEC


class ActionModule(ActionBase):
    """The action of the module of the same name, which documents arguments and result."""

    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: Optional[str] = None, task_vars: Optional[dict[str, Any]] = None) -> dict[str, Any]:
        """Ask every host; trouble with one is that host's result."""
        super().run(tmp, task_vars)
        validated = ArgumentSpecValidator(SPEC["argument_spec"]).validate(self._task.args)
        if validated.error_messages:
            return {"failed": True, "msg": "; ".join(validated.error_messages)}
        given = validated.validated_parameters
        hosts = Hosts(self, given["command"], task_vars or {})
        answers = run_each(given["names"], hosts.prepared, given["at_once"], given["timeout"])
        late = [name for name, answer in answers.items() if answer is None]
        if late:
            end_children()
        silent = {"unreachable": True, "msg": "timed out: no answer within %d s" % given["timeout"]}
        return {"changed": False, "answers": [answers[name] or silent for name in given["names"]]}

    def of_host(self, connection: Any, context: PlayContext, templar: Any) -> ActionModule:
        """The same action over the connection to another host."""
        return type(self)(self._task, connection, context, self._loader, templar, self._shared_loader_obj)

    def answer(self, command: str) -> dict[str, Any]:
        """Run a command over the connection: `rc`, `stdout`, `stderr`; or `unreachable` or `failed`, and `msg`."""
        try:
            told = self._low_level_execute_command(command)
        except AnsibleConnectionFailure as exc:
            return {"unreachable": True, "msg": str(exc)}
        except AnsibleError as exc:
            return {"failed": True, "msg": str(exc)}
        finally:
            self._connection.close()
        return {"rc": told["rc"], "stdout": told["stdout"], "stderr": told["stderr"]}


class Hosts:
    """What Ansible knows of the other hosts of the play.

    Args:
        action: of the task.
        command: name of the variable that holds the command.
        own_variables: of the host that the task runs for.
    """

    def __init__(self, action: ActionModule, command: str, own_variables: dict[str, Any]) -> None:
        self._action = action
        self._command = command
        self._task = action._task
        self._manager = self._task.get_variable_manager()
        self._play = self._task._parent._play
        self._cli = _given_on_the_command_line(action._play_context, own_variables)

    def prepared(self, name: str) -> Callable[[], dict[str, Any]]:
        """What asks one host; it may run in a thread, all that reads variables is done here."""
        host = self._manager._inventory.get_host(name)
        if host is None:
            return _failing("the inventory has no host %s" % name)
        try:
            # the list of the play's hosts, which nobody asks for here, would be made anew for each of them
            variables = self._manager.get_vars(
                play=self._play, host=host, task=self._task, _hosts=[name], _hosts_all=[name]
            )
            templar = self._action._templar.copy_with_new_env(available_variables=variables)
            command = templar.template(variables[self._command]).strip()
            action = self._action.of_host(*self._connection(host, variables, templar), templar)
        except AnsibleError as exc:
            return _failing(str(exc))
        return lambda: action.answer(command)

    def _connection(self, host: Any, variables: dict[str, Any], templar: Any) -> tuple[Any, PlayContext]:
        context = PlayContext(self._play, self._cli).set_task_and_variable_override(self._task, variables, templar)
        context.post_validate(templar)
        context.remote_addr = context.remote_addr or host.address
        context.connection = templar.template(variables.get("ansible_connection") or self._task.connection)
        whose = {"task_uuid": self._task._uuid, "ansible_playbook_pid": str(os.getppid())}
        connection = connection_loader.get(context.connection, context, new_stdin=None, **whose)
        if connection is None:
            raise AnsibleError("the connection plugin %s was not found" % context.connection)
        become = self._become(variables, templar)
        connection.set_become_plugin(become)
        context.set_attributes_from_plugin(connection)
        if become is not None:
            context.set_become_plugin(become.name)
        keywords = {**self._task.dump_attrs(), "timeout": context.timeout}
        keywords.pop("retries", None)  # of the task, not of the connection
        if context.password:
            keywords["password"] = context.password
        if become is not None and context.become_pass:
            keywords["become_pass"] = context.become_pass
        options = connection._resolve_option_variables(variables, templar)
        connection.set_options(task_keys=keywords, var_options=options)
        _set_options(connection._shell, "shell", variables, templar, keywords)
        if become is not None:
            _set_options(become, "become", variables, templar, keywords)
            for option in ("become_user", "become_flags", "become_exe", "become_pass"):
                if become.has_option(option):
                    setattr(context, option, become.get_option(option))
            context.prompt = become.prompt
        return connection, context

    def _become(self, variables: dict[str, Any], templar: Any) -> Any:
        given = variables.get("ansible_become")
        if not (self._task.become if given is None else boolean(templar.template(given))):
            return None
        method = templar.template(variables.get("ansible_become_method") or self._task.become_method)
        become = become_loader.get(method)
        if become is None:
            raise AnsibleError("the become plugin %s was not found" % method)
        return become


def _given_on_the_command_line(context: PlayContext, own_variables: dict[str, Any]) -> dict[str, str]:
    """The passwords that --ask-pass and --ask-become-pass asked for, and not those of one host's variables."""
    found = {}
    for name, attribute in (("conn_pass", "password"), ("become_pass", "become_pass")):
        if not any(variable in own_variables for variable in constants.MAGIC_VARIABLE_MAPPING[attribute]):
            found[name] = getattr(context, attribute) or ""
    return found


def _set_options(plugin: Any, kind: str, variables: dict[str, Any], templar: Any, keywords: dict[str, Any]) -> None:
    names = [name for name in constants.config.get_plugin_vars(kind, plugin._load_name) if name in variables]
    plugin.set_options(task_keys=keywords, var_options={name: templar.template(variables[name]) for name in names})


def _failing(message: str) -> Callable[[], dict[str, Any]]:
    return lambda: {"failed": True, "msg": message}
