# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a thin module runs: arguments in, one call, result out.

The action plugins take `SPEC` and `run` from a module's file without running the module, so AnsibleModule, whose import
costs a quarter of a second, is imported only where it is used.
"""

from __future__ import annotations

from typing import Any, Callable

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import RecoveryError

Run = Callable[[dict[str, Any], bool], dict[str, Any]]


def run_module(spec: dict[str, Any], run: Run) -> None:
    """Parse the arguments of a module by `spec`, call `run(params, check_mode)` and end the module.

    Only `RecoveryError` is turned into a failed result: any other exception is a defect and shows its traceback.
    """
    from ansible.module_utils.basic import AnsibleModule

    module = AnsibleModule(**spec)
    try:
        result = run(module.params, module.check_mode)
    except RecoveryError as exc:
        module.fail_json(msg=str(exc), **exc.fields)
    module.exit_json(**result)
