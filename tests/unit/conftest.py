# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fixtures of all unit tests."""

from __future__ import annotations

from .private_mariadb import empty_ledger, ledger, ledger_tables, mariadb, store
from .private_munge import munge_cluster

__all__ = ["empty_ledger", "ledger", "ledger_tables", "mariadb", "munge_cluster", "store"]
