# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.errors import Unreadable
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm import queue
from ansible_collections.mission_control.job_recovery.plugins.module_utils.slurm.cli import SlurmCli

SQUEUE = r"""[[ "$1 $2 $3" == "--all --noheader --states=all" && "$4" == --format=* && $# == 4 ]] || exit 97
    separator=${4#--format=%%A}; separator=${separator%%%%"%%F"*}
    sed "s/|/$separator/g" %s/jobs"""
FIRST = """7|7|N/A|RUNNING|1000|n[1-2]|main|100|Unknown|None|
8|8|N/A|PENDING|1000||main|100|N/A|Priority|
9|5|3|FAILED|1000|n3|main|100|150|NonZeroExitCode|
10|5|4|COMPLETING|1000|n3|main|100|150|None|
"""


def look(fake: Any, before: queue.Jobs, text: str) -> queue.Jobs:
    (fake.folder / "jobs").write_text(text, encoding="utf-8")
    fake.program("squeue", SQUEUE % fake.folder)
    return SlurmCli(fake.bin_dir).all_jobs(before)


def test_only_what_changed_is_read_again(fake: Any) -> None:
    first = look(fake, queue.Jobs(), FIRST)
    assert (sorted(first.queued), sorted(first.ended)) == (["5_4", "7", "8"], ["5_3"])
    assert first.changed == {"7", "8", "5_3", "5_4"}
    assert (first.queued["7"].nodes, first.ended["5_3"].end_time) == (("n1", "n2"), 150)
    second = look(fake, first, FIRST.replace("8|8|N/A|PENDING|1000|", "8|8|N/A|RUNNING|1000|n4"))
    assert second.changed == {"8"}
    assert second.queued["8"].state == "RUNNING"
    assert second.queued["7"] is first.queued["7"]
    third = look(fake, second, FIRST.split("\n", 1)[1])
    assert (third.changed, "7" in third.queued) == ({"8"}, False)
    assert look(fake, third, "").queued == {}


@pytest.mark.parametrize("text", [
    "7|7|N/A|RUNNING|1000|n1|main|100|Unknown|None",  # cut off
    FIRST + "7|7|N/A|RUNN",
    "7|7|N/A|RUNNING|1000|n1|main|100|Unknown|\n",  # a column is missing
    "slurm_load_jobs: something\n",
])
def test_a_damaged_answer_is_no_answer(fake: Any, text: str) -> None:
    with pytest.raises(Unreadable):
        look(fake, queue.Jobs(), text)


@pytest.mark.parametrize(("said", "found"), [
    ("7                   0                   \n12                  2                   \n", {12}),
    ("", set()),
])
def test_jobs_that_ran_before(fake: Any, said: str, found: set[int]) -> None:
    (fake.folder / "jobs").write_text(said, encoding="utf-8")
    asked = "--all --noheader --states=PENDING,RUNNING,SUSPENDED --Format=JobID:20,RestartCnt:20"
    fake.program("squeue", '[[ "$*" == "%s" ]] || exit 97; cat %s/jobs' % (asked, fake.folder))
    assert SlurmCli(fake.bin_dir).restarted() == found


def test_jobs_that_ran_before_and_an_answer_that_is_none(fake: Any) -> None:
    fake.program("squeue", "echo 7 many")
    with pytest.raises(Unreadable):
        SlurmCli(fake.bin_dir).restarted()
