# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An inventory's `group_vars/all`: settings in one file, secrets in another that Ansible Vault encrypts.

Only what a variable's value is changes in them; see module_utils/configure/text.py. A secret is never written in clear,
not for a moment and not to a temporary file.
"""

from __future__ import annotations

import os
import re
import tempfile
from typing import Any, Callable, Mapping, Optional

from ansible.errors import AnsibleError
from ansible.parsing.vault import VaultLib, is_encrypted, match_encrypt_secret
from ansible_collections.mission_control.job_recovery.plugins.module_utils.configure.text import (
    HEADER,
    literal,
    reference,
    set_values,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import BadInput, Unreadable

SETTINGS = "job_recovery.yml"
SECRETS = "vault.yml"

Secrets = Callable[[], list[Any]]


class Folder:
    """The folder's files.

    Args:
        path: the folder; it need not be there yet.
        secrets: gets the vault's passwords as VaultLib wants them, `[(id, VaultSecret)]`; called when one is needed.
    """

    def __init__(self, path: str, secrets: Secrets) -> None:
        self._path = path
        self._secrets = secrets

    def check(self) -> None:
        """Refuse a place that Ansible would not read, or that would hide what it reads now.

        Raises:
            BadInput: `all.yml` lies beside the folder that is to be made.
        """
        if os.path.isdir(self._path):
            return
        for ending in (".yml", ".yaml", ".json"):
            if os.path.exists(self._path + ending):
                raise BadInput(
                    "%s would be hidden by the folder %s, of which Ansible then reads instead"
                    % (self._path + ending, self._path),
                    "make the folder and move the file into it as main%s" % ending,
                )

    def set_elsewhere(self, variable: str) -> Optional[str]:
        """The file of the folder, other than ours, in which a variable is set; it would win or be shadowed."""
        for name in sorted(os.listdir(self._path)) if os.path.isdir(self._path) else []:
            path = os.path.join(self._path, name)
            if name in (SETTINGS, SECRETS) or not name.endswith((".yml", ".yaml")) or not os.path.isfile(path):
                continue
            if re.search(r"^%s\s*:" % re.escape(variable), _read(path), re.MULTILINE):
                return path
        return None

    def write(
        self, values: Mapping[str, Any], secrets: Mapping[str, tuple[str, str]], check_mode: bool
    ) -> list[dict[str, str]]:
        """Set variables, and secrets as `{variable: (its name in the vault, its value)}`; returns diffs as Ansible's.

        The diff of the secrets names the file only.

        Raises:
            BadInput: there is no password for the vault, or not the right one.
            Unreadable: a file cannot be read.
        """
        diffs = []
        kept = {name: literal(value) for name, (name, value) in secrets.items()}
        rendered = {name: literal(value) for name, value in values.items()}
        rendered.update({variable: reference(name) for variable, (name, value) in secrets.items()})
        if kept and self._write_secrets(kept, check_mode):
            diffs.append({"before_header": self._file(SECRETS), "after_header": self._file(SECRETS),
                          "before": "(encrypted)\n", "after": "(encrypted, changed)\n"})
        path = self._file(SETTINGS)
        before = _read(path)
        after = set_values(before, rendered) if rendered else before
        if after != before:
            if not check_mode:
                _replace(path, after.encode("utf-8"), 0o644)
            diffs.append({"before_header": path, "after_header": path, "before": before, "after": after})
        return diffs

    def _write_secrets(self, kept: Mapping[str, str], check_mode: bool) -> bool:
        path = self._file(SECRETS)
        present = _read(path)
        passwords = self._secrets()
        vault = VaultLib(passwords)
        identity, used = None, None
        clear = present
        if is_encrypted(present):
            try:
                clear, identity, used = vault.decrypt_and_get_vault_id(present)
            except AnsibleError as exc:
                raise BadInput("%s cannot be decrypted: %s" % (path, exc), "give its password") from None
            clear = clear.decode("utf-8") if isinstance(clear, bytes) else clear
        after = set_values(clear or HEADER, kept)
        if after == clear and is_encrypted(present):
            return False
        if not check_mode:
            if used is None:
                identity, used = match_encrypt_secret(passwords)
            _replace(path, vault.encrypt(after, used, vault_id=_label(identity)), 0o600)
        return True

    def _file(self, name: str) -> str:
        return os.path.join(self._path, name)


def _label(identity: Optional[str]) -> Optional[str]:
    """A vault id as the envelope names it; the default one is not named."""
    return None if identity in (None, "default") else identity


def _read(path: str) -> str:
    """A file's text; empty where there is none."""
    try:
        with open(path, encoding="utf-8") as handle:
            return handle.read()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as exc:
        raise Unreadable("%s: %s" % (path, getattr(exc, "strerror", None) or "no text")) from exc


def _replace(path: str, content: bytes, mode: int) -> None:
    """Write a file in one step; a present one keeps its mode where that is narrower."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if os.path.exists(path):
        mode &= os.stat(path).st_mode
    number, temporary = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".job-recovery-")
    try:
        with open(number, "wb") as handle:
            handle.write(content)
            os.fchmod(handle.fileno(), mode)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
