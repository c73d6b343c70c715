# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The emergency stop, and the ledger's high-water mark.

The stop is a file on the controller or a row of the ledger; either stops. It is looked at when targets are claimed and
before every act. A file that may be there and cannot be looked at stops, too.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import Iterator, Optional

from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import Unreadable
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.ledger.store import Store
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.settings import Settings

STOP = "stop"
HIGH_WATER = "high_water"
_MARK = "high-water"


def stopped_by_file(path: str) -> str:
    """Why the file stops recovery; the empty text when it is not there."""
    try:
        os.stat(path)
    except FileNotFoundError:
        return ""
    except OSError as exc:
        return "stopped: whether %s is there cannot be told (%s)" % (path, exc.strerror)
    return "stopped by the file %s" % path


def stopped(settings: Settings, store: Store) -> str:
    """Why recovery is stopped; the empty text when it is not."""
    by_file = stopped_by_file(settings.stop_file)
    if by_file:
        return by_file
    row = store.control.get(STOP)
    return "stopped by %s in the ledger" % (ascii(row["changed_by"])) if row else ""


def restored(settings: Settings, store: Store) -> bool:
    """Whether the ledger is older than what this controller has seen of it: restored from a backup."""
    mark = _read_mark(settings.state_dir)
    return mark is not None and mark > _highest(store)


def raise_mark(settings: Settings, store: Store, number: int) -> None:
    """Keep, here and in the ledger, that this incident's number was given.

    Raises:
        Unreadable: the state directory cannot be written: without the mark a restored ledger would not be noticed.
    """
    store.control.put(HIGH_WATER, str(max(number, _highest(store))), "recovery")
    with _alone(settings.state_dir):
        mark = _read_mark(settings.state_dir)
        if mark is None or number > mark:
            _write_mark(settings.state_dir, number)


def approve(settings: Settings, store: Store) -> None:
    """A person says that the ledger is good as it is: the mark begins anew from it."""
    with _alone(settings.state_dir):
        _write_mark(settings.state_dir, _highest(store))


def _highest(store: Store) -> int:
    row = store.control.get(HIGH_WATER)
    return max(store.incidents.highest(), int(row["value"]) if row and row["value"].isdigit() else 0)


@contextlib.contextmanager
def _alone(directory: str) -> Iterator[None]:
    """No other run changes the mark meanwhile: a lower number could take the place of a higher one."""
    try:
        place = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as exc:
        raise Unreadable("the high-water mark cannot be written (%s)" % exc, "make the folder %s" % directory) from exc
    try:
        fcntl.flock(place, fcntl.LOCK_EX)  # for the time of one small write
        yield
    finally:
        os.close(place)


def _read_mark(directory: str) -> Optional[int]:
    path = os.path.join(directory, _MARK)
    try:
        with open(path, encoding="ascii") as handle:
            text = handle.read(32).strip()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as exc:
        raise Unreadable("the high-water mark %s cannot be read (%s)" % (path, exc), "correct its permissions") from exc
    if not text.isdigit():
        raise Unreadable("the high-water mark %s holds no number" % path, "look why, then `job-recovery approve`")
    return int(text)


def _write_mark(directory: str, number: int) -> None:
    path = os.path.join(directory, _MARK)
    fresh = "%s.%d" % (path, os.getpid())
    try:
        with open(fresh, "w", encoding="ascii") as handle:
            handle.write("%d\n" % number)
            handle.flush()
            os.fsync(handle.fileno())
        os.chmod(fresh, 0o644)  # root approves, the service's account reads
        os.replace(fresh, path)
    except OSError as exc:
        raise Unreadable("the high-water mark %s cannot be written (%s)" % (path, exc), "is the disk full?") from exc
