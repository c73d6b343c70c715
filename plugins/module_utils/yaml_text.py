# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""YAML that somebody else wrote: an administrator, a chart, a repository, a ConfigMap."""

from __future__ import annotations

from typing import IO, Any, Union

try:
    import yaml
except ImportError:  # callers say what they need it for, before they read
    yaml = None


def loads(text: Union[str, bytes, IO[str]]) -> Any:
    """What the text, or the file, holds, by the C parser where there is one. Raises as `documents`."""
    found = documents(text)
    if len(found) > 1:
        raise ValueError("more than one document")
    return found[0] if found else None


def documents(text: Union[str, bytes, IO[str]]) -> list[Any]:
    """What each document of the text holds.

    Raises:
        ValueError: it is no YAML; the message has nothing of the text, its cause may have the line. A day that does
            not exist, a tag whose value is of another kind, and deep nesting are four more errors to PyYAML.
    """
    try:
        return list(yaml.load_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
    except (yaml.YAMLError, ValueError, RecursionError, AttributeError, LookupError) as exc:
        raise ValueError(type(exc).__name__) from exc
