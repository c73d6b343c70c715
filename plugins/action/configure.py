# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Asks for the settings of a site, tests each answer at once, and writes them; see the module of this name.

It works on the machine that runs ansible-playbook, where the inventory and the terminal are, and has the head node
looked at by the module `configure_info`.
"""

from __future__ import annotations

import functools
import os
from typing import Any, Mapping, Optional

from ansible.errors import AnsibleActionFail, AnsibleError, AnsiblePromptInterrupt, AnsiblePromptNoninteractive
from ansible.module_utils.common.text.converters import to_bytes, to_text
from ansible.parsing.vault import VaultSecret, VaultSecretsContext, get_file_vault_secret
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible.utils.vars import load_extra_vars
from ansible_collections.mission_control.job_recovery.plugins.module_utils.configure import questions as table
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import BadInput, RecoveryError
from ansible_collections.mission_control.job_recovery.plugins.module_utils.kubernetes.credentials import contexts
from ansible_collections.mission_control.job_recovery.plugins.plugin_utils.configure_dialogue import (
    Dialogue,
    NobodyThere,
)
from ansible_collections.mission_control.job_recovery.plugins.plugin_utils.configure_files import SETTINGS, Folder
from ansible_collections.mission_control.job_recovery.plugins.plugin_utils.configure_tests import TESTS, Site

_PREFIX = "mission_control.job_recovery."
# Not asked for, but used by the tests where a site has set them.
_USED = (
    "charts_ca_file",
    "job_recovery_ledger_port",
    "job_recovery_loki_address",
    "job_recovery_loki_tenant",
    "job_recovery_slurm_bin_dir",
)
_KUBECONFIG = "job_recovery_kubernetes_admin_kubeconfig"


class ActionModule(ActionBase):
    """The action `configure`."""

    _supports_check_mode = True
    _supports_diff = True

    def run(self, tmp: Optional[str] = None, task_vars: Optional[dict[str, Any]] = None) -> dict[str, Any]:
        """Run the task; see the module's documentation for arguments and result."""
        super().run(tmp, task_vars)
        validated, options = self.validate_argument_spec(
            argument_spec={
                "dest": {"type": "str", "required": True},
                "vault_password_file": {"type": "str", "default": ""},
                "ask": {"type": "bool", "default": True},
                "timeout": {"type": "int", "default": 10},
            }
        )
        del validated
        try:
            return _Run(self, options, task_vars or {}).result()
        except RecoveryError as exc:
            raise AnsibleActionFail(str(exc)) from None

    def on_head(self, task_vars: dict[str, Any], name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Run a module of the collection on the task's host."""
        return self._execute_module(module_name=_PREFIX + name, module_args=dict(arguments), task_vars=task_vars)

    def value(self, template: Any) -> Any:
        """What an inventory's variable holds; None where it refers to something that is not there."""
        try:
            return self._templar.template(template)
        except AnsibleError:
            return None


class _Run:
    """One run of the action, and what it needs to remember."""

    def __init__(self, action: ActionModule, options: Mapping[str, Any], task_vars: dict[str, Any]) -> None:
        self._action = action
        self._options = options
        self._task_vars = task_vars
        self._given_names: set[str] = set()
        self._display = Display()
        self._diffs: list[dict[str, str]] = []
        self._typed: Optional[list[Any]] = None
        self._folder = Folder(options["dest"], self._vault_secrets)
        self._interactive = bool(options["ask"])  # until it turns out that there is no terminal

    def result(self) -> dict[str, Any]:
        """Ask, test and write."""
        self._folder.check()
        view = table.View()
        given = self._given(view)
        self._find(view, given)
        self._given_names = set(given)
        site = Site(functools.partial(self._action.on_head, self._task_vars), self._options["timeout"])
        dialogue = Dialogue(
            view,
            given,
            lambda topic, seen: TESTS[topic](seen, site) if topic in TESTS else None,
            {_KUBECONFIG: _contexts},
            self._ask if self._interactive else None,
            self._display.display,
            functools.partial(self._save, view),
        )
        dialogue.run()
        changed = bool(self._diffs)
        return {"changed": changed, "diff": self._diffs, "dest": os.path.join(self._options["dest"], SETTINGS)}

    def _given(self, view: table.View) -> dict[str, Any]:
        """The variables that have a value already."""
        given = {}
        for row in table.QUESTIONS:
            value = self._action.value(self._task_vars.get(row.variable))
            if table.is_answer(row, value, view):
                given[row.variable] = value
        for name in _USED:
            value = self._action.value(self._task_vars.get(name))
            if value is not None:
                given[name] = value
        return given

    def _find(self, view: table.View, given: Mapping[str, Any]) -> None:
        """What the head node and this machine have."""
        asked = {"timeout": self._options["timeout"], "slurm_bin_dir": given.get("job_recovery_slurm_bin_dir", "")}
        if given.get("job_recovery_slurm_conf"):
            asked["slurm_conf"] = given["job_recovery_slurm_conf"]
        result = self._action.on_head(self._task_vars, "configure_info", asked)
        if result.get("failed") or result.get("unreachable"):
            raise BadInput("the head node cannot be looked at: %s" % result.get("msg", "no answer"))
        kubeconfig = os.environ.get("KUBECONFIG") or os.path.expanduser("~/.kube/config")
        view.found.update(
            clusters=result["slurm"],
            slurm_bin_dir=result["slurm_bin_dir"],
            sockets=result["sockets"],
            kubeconfig=kubeconfig if os.path.isfile(kubeconfig) else "",
        )

    def _ask(self, prompt: str, secret: bool) -> str:
        try:
            return to_text(self._display.prompt_until(prompt, private=secret), errors="surrogate_or_strict")
        except AnsiblePromptNoninteractive:
            self._interactive = False
            raise NobodyThere from None
        except AnsiblePromptInterrupt:
            raise BadInput("configure: stopped; what was answered and tested until here is written") from None

    def _save(self, view: table.View, answers: Mapping[str, Any]) -> None:
        """Write what is new: what was answered or found now, or given on the command line."""
        on_command_line = load_extra_vars(self._action._loader)
        values, secrets = {}, {}
        rows = {row.variable: row for row in table.QUESTIONS}
        for name, value in {**table.derived(view), **answers}.items():
            if name in self._given_names and name not in on_command_line:
                continue
            if not self._interactive and name not in on_command_line and value == "":
                continue
            elsewhere = self._folder.set_elsewhere(name)
            if elsewhere:
                self._display.warning("%s is set in %s and was not changed there" % (name, elsewhere))
            elif name in rows and rows[name].vault and value:
                secrets[name] = (rows[name].vault, value)
            elif name in rows or name in table.derived(view):
                values[name] = value
        self._diffs += self._folder.write(values, secrets, bool(self._action._task.check_mode))

    def _vault_secrets(self) -> list[Any]:
        """The run's own vault passwords, else the password file's, else what a person types, once."""
        if self._typed is None:
            context = VaultSecretsContext.current(optional=True)
            self._typed = list(context.secrets) if context and context.secrets else self._one_vault_secret()
        return self._typed

    def _one_vault_secret(self) -> list[Any]:
        path = self._options["vault_password_file"]
        if path:
            secret = get_file_vault_secret(filename=path, loader=self._action._loader)
            secret.load()
            return [("default", secret)]
        while self._interactive:
            try:
                password = self._ask("A new password for Ansible Vault, which keeps the secrets: ", True)
                again = self._ask("The same again: ", True)
            except NobodyThere:
                break
            if password and password == again:
                return [("default", VaultSecret(to_bytes(password)))]
            self._display.display("  These are not the same, or empty.")
        raise BadInput(
            "configure: there are secrets to write, and no vault password",
            "run it with --vault-password-file or --ask-vault-pass, or set configure_vault_password_file",
        )


def _contexts(view: table.View) -> dict[str, Any]:
    names, current = contexts(view.answers[_KUBECONFIG])
    return {"contexts": names, "current_context": current}
