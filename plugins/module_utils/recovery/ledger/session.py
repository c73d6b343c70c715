# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A session with the ledger that a worker keeps from one look to the next, and opens anew after any trouble."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Iterator, Optional

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import RecoveryError
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.store import (
    Store,
    open_store,
)
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import Settings


class LedgerSession:
    """For one thread."""

    def __init__(self) -> None:
        self._store: Optional[Store] = None
        self._opened_for: Any = None

    @contextmanager
    def open(self, settings: Settings) -> Iterator[Store]:
        """The ledger. An error inside of the `with` ends the session: what was read on it may be half an answer.

        Raises:
            RecoveryError: the ledger cannot be asked.
        """
        if self._store is not None and self._opened_for != settings.ledger:
            self.close()
        if self._store is None:
            self._store = open_store(settings.ledger)
            self._opened_for = settings.ledger
        try:
            yield self._store
        except RecoveryError:
            self.close()
            raise

    def close(self) -> None:
        """End the session; the next look opens another."""
        if self._store is not None:
            self._store.database.close()
            self._store = None
