# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/checks.md names every check that the code can make, and no other."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Iterator

import yaml
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import settings, watchdog

CHECKOUT = Path(__file__).resolve().parents[5]
CODE = sorted((CHECKOUT / "plugins/module_utils/checks").glob("*.py"))
#: Functions and classes whose first argument is the id of a check; rows of tables have it first, too.
MAKERS = {"Check", "Requirement", "_check", "_memory", "_over", "judge"}
ID = re.compile(r"[a-z]+(?:_(?:[a-z]+|%s))*\Z")


def in_code() -> set[str]:
    """Ids; `%s` stands in those that are made for several things."""
    return {found for path in CODE for node in ast.walk(ast.parse(path.read_text())) for found in ids(node)}


def ids(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        if "_%s" in text(node.left):
            yield from matching(node.left)
    elif isinstance(node, ast.Call) and node.args:
        if getattr(node.func, "id", "") in MAKERS:
            yield from matching(node.args[0])
    elif isinstance(node, ast.Tuple) and len(node.elts) > 2:
        if text(node.elts[1])[:1].isupper():  # its title
            yield from matching(node.elts[0])
    elif isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values):
            if text(key) == "id":
                yield from matching(value)


def text(node: object) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def matching(node: ast.AST) -> Iterator[str]:
    if ID.match(text(node)):
        yield text(node)


def in_roles() -> set[str]:
    """Those that a role makes itself."""
    found = set()
    for path in (CHECKOUT / "roles").glob("*/vars/main.yml"):
        variables = yaml.safe_load(path.read_text()) or {}
        found |= {one["id"] for one in variables.values() if isinstance(one, dict) and "id" in one}
    return found


def documented() -> list[str]:
    rows = re.findall(r"^\| (`[^|]*)\|", (CHECKOUT / "docs/checks.md").read_text(), re.MULTILINE)
    return [found for row in rows for found in re.findall(r"`(\w+)`", row)]


def test_the_code_is_read_right() -> None:
    assert {"node_memory", "nodes_root", "registry_images", "kyverno", "promtail", "nodes_%s_enabled",
            "kubernetes_rights_%s", "agents_key", "recovery_source_%s"} <= in_code()
    assert in_roles() == {"active_head", "recovery_installed"}


def test_every_check_is_documented_once_and_no_other() -> None:
    made = in_code() | in_roles()
    patterns = {name: re.compile(name.replace("%s", "[a-z]+") + r"\Z") for name in made}
    names = documented()
    assert len(names) == len(set(names))
    undocumented = {name for name, pattern in patterns.items() if not any(map(pattern.match, names))}
    assert undocumented == set()
    assert {name for name in names if not any(pattern.match(name) for pattern in patterns.values())} == set()


def test_every_event_source_has_its_check_documented() -> None:
    slurm, kubernetes = settings.SlurmSettings(enabled=True), settings.KubernetesSettings(kubeconfig="/k")
    sources = watchdog.expected(settings.Settings(cluster="c", slurm=slurm, kubernetes=kubernetes))
    found = {name for name in documented() if name.startswith("recovery_source_")}
    assert found == {"recovery_source_%s" % name for name in sources}
