# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lost nodes, told from rounds of probes: every story is played round by round, at one round a second."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Callable, Optional

import pytest
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery import loss
from ansible_collections.mission_control.job_recovery.plugins.module_utils.recovery.loss import Moment, Round, Rules

RULES = Rules(silence=60.0, allowed=1)
Answer = Optional[bool]
Story = Callable[[int, str], Answer]  # second, node -> what a probe of it gives


@dataclass
class Play:
    """A controller that probes `count` nodes and asks the BMCs of silent ones.

    `off` tells of second and node whether the BMC says Off; `late` by second how long the controller stands still
    before that round, `slow` how long that round takes.
    """

    count: int
    story: Story
    off: Callable[[int, str], bool] = lambda second, name: False
    late: dict[int, float] = field(default_factory=dict)
    slow: dict[int, float] = field(default_factory=dict)
    rules: Rules = RULES
    sleeps_unseen: bool = False  # a paused virtual machine: only the wall clock tells afterwards

    def verdicts(self, seconds: int) -> list[loss.Verdict]:
        names = ["n%d" % number for number in range(1, self.count + 1)]
        tracks: dict[str, loss.Track] = {}
        before, up, wall, said = None, 1000.0, 5e8, []
        for second in range(seconds):
            lost = self.late.get(second, 0.0)
            up, wall = up + 1 + (0 if self.sleeps_unseen else lost), wall + 1 + lost
            took = self.slow.get(second, 0.0)
            look = Round(
                Moment(up, wall), Moment(up + took, wall + took), {name: self.story(second, name) for name in names}
            )
            up, wall = up + took, wall + took
            tracks = loss.follow(tracks, before, look)
            before = look.ended
            for name in names:
                if tracks[name].misses:
                    tracks[name] = loss.told(tracks[name], self.off(second, name), up)
            said.append(loss.judge(tracks, names, self.rules, up))
        return said


def silent_from(second: int, *names: str) -> Story:
    return lambda now, name: not (now >= second and name in names)


def always_off(*names: str) -> Callable[[int, str], bool]:
    return lambda second, name: name in names


def first(said: list[loss.Verdict], what: str) -> Optional[int]:
    return next((second for second, verdict in enumerate(said) if getattr(verdict, what)), None)


@pytest.mark.parametrize("count", [1, 2, 3, 288])
def test_a_dead_node_is_told_after_two_rounds(count: int) -> None:
    said = Play(count, silent_from(10, "n1"), always_off("n1")).verdicts(20)
    assert first(said, "dead") == 11
    assert said[-1] == loss.Verdict(dead=("n1",))


@pytest.mark.parametrize(
    ("count", "second", "withheld"),
    [(1, None, loss.FEW), (2, None, loss.FEW), (3, 70, ""), (288, 70, "")],
)
def test_silence_alone_counts_after_its_time_and_with_witnesses(
    count: int, second: Optional[int], withheld: str
) -> None:
    said = Play(count, silent_from(10, "n1")).verdicts(90)
    assert first(said, "silent") == second
    assert said[-1].withheld == withheld
    assert first(said, "dead") is None
    if second:
        assert said[-1].silent == {"n1": 79.0}


def test_silence_never_counts_where_the_site_says_so() -> None:
    said = Play(288, silent_from(0, "n1"), rules=Rules(0.0, 1)).verdicts(400)
    assert all(verdict == loss.Verdict() for verdict in said)


def test_a_bmc_that_says_off_of_a_node_that_answers_is_not_believed() -> None:
    said = Play(3, lambda second, name: True, always_off("n1", "n2", "n3")).verdicts(100)
    assert all(verdict == loss.Verdict() for verdict in said)


def test_a_node_that_answers_again_is_forgotten_with_its_bmc() -> None:
    """Off, and on again before the node is silent a second time."""

    def story(second: int, name: str) -> bool:
        return not (name == "n1" and (10 <= second < 15 or second >= 20))

    said = Play(3, story, lambda second, name: second < 20).verdicts(30)
    assert [second for second, verdict in enumerate(said) if verdict.dead] == [11, 12, 13, 14]


def test_a_bmc_that_was_asked_before_the_silence_proves_nothing() -> None:
    track = loss.Track(misses=3, silent_since=100.0)
    assert loss.told(track, True, 99.0).off_at is None
    assert loss.told(track, True, 101.0).off_at == 101.0
    assert loss.told(loss.told(track, True, 101.0), False, 103.0).off_at is None
    assert loss.told(loss.Track(answers=True), True, 101.0).off_at is None


def test_the_word_of_a_bmc_that_went_silent_holds_for_seconds() -> None:
    track = loss.told(loss.Track(misses=3, silent_since=100.0), True, 101.0)
    tracks = {"n1": track, "n2": loss.Track(answers=True)}
    assert loss.judge(tracks, ["n1"], RULES, 110.0).dead == ("n1",)
    assert loss.judge(tracks, ["n1"], RULES, 112.0).dead == ()


@pytest.mark.parametrize("count", [2, 3, 4, 288])
def test_the_controller_that_is_cut_off_says_nothing_of_anybody(count: int) -> None:
    """Its BMC network still works, and says whatever it says."""
    names = ["n%d" % number for number in range(1, count + 1)]
    said = Play(count, silent_from(10, *names), always_off(*names), rules=Rules(60.0, 1000)).verdicts(120)
    assert first(said, "dead") is None
    assert first(said, "silent") is None
    assert said[-1].withheld == loss.CUT_OFF


@pytest.mark.parametrize(
    ("count", "gone", "told"),
    [(3, 1, True), (3, 2, False), (4, 2, True), (4, 3, False), (5, 3, False), (288, 144, True), (288, 145, False)],
)
def test_more_than_half_of_the_others_must_answer(count: int, gone: int, told: bool) -> None:
    names = ["n%d" % number for number in range(1, gone + 1)]
    said = Play(count, silent_from(10, *names), always_off(*names), rules=Rules(60.0, 1000)).verdicts(20)
    assert bool(said[-1].dead) is told
    assert said[-1].withheld == ("" if told else loss.CUT_OFF)


@pytest.mark.parametrize(("gone", "told"), [(28, True), (29, False)])
def test_a_switch_takes_more_nodes_than_may_be_lost(gone: int, told: bool) -> None:
    names = ["n%d" % number for number in range(1, gone + 1)]
    said = Play(288, silent_from(10, *names), rules=Rules(60.0, 28)).verdicts(100)
    assert len(said[-1].silent) == (28 if told else 0)
    assert said[-1].withheld == ("" if told else loss.TOO_MANY)


def test_a_dead_node_waits_while_another_is_silent_beyond_what_may_be_lost() -> None:
    said = Play(288, silent_from(10, "n1", "n2"), always_off("n1")).verdicts(20)
    assert said[-1] == loss.Verdict(withheld=loss.TOO_MANY)


@pytest.mark.parametrize("unseen", [False, True])
def test_a_controller_that_stood_still_measures_anew(unseen: bool) -> None:
    """SIGSTOP for fifty seconds, or a machine that was paused: they are no silence of anybody."""
    story = silent_from(10, "n1")
    said = Play(3, story, late={15: 50.0}, sleeps_unseen=unseen).verdicts(100)
    assert first(said, "silent") == 76  # sixty seconds after the first round that counts again
    said = Play(3, story, always_off("n1"), late={11: 50.0}, sleeps_unseen=unseen).verdicts(20)
    assert first(said, "dead") == 13


def test_a_round_in_which_the_controller_stood_still_is_no_silence() -> None:
    """Every probe of it missed its time, of nodes that are well."""
    said = Play(3, silent_from(10, "n1"), always_off("n1"), slow={10: 30.0, 11: 30.0, 12: 30.0}).verdicts(14)
    assert first(said, "dead") is None


def test_the_answers_of_such_a_round_count() -> None:
    look = Round(Moment(0, 0), Moment(99, 99), {"n1": True, "n2": False})
    after = loss.follow({"n2": loss.Track(misses=7, silent_since=1.0)}, None, look)
    assert after == {"n1": loss.Track(answers=True), "n2": loss.Track()}


def test_a_clock_that_is_set_back_is_no_standstill() -> None:
    assert not loss.stood_still(Moment(10, 5000), Round(Moment(11, 1000), Moment(11, 1000), {}))


def test_trouble_of_our_own_is_no_silence() -> None:
    """A name that is not resolved, no descriptor, no route: for one node, then for all."""

    def story(second: int, name: str) -> Optional[bool]:
        return None if name == "n1" and second >= 10 else True

    def dead(second: int, name: str) -> Optional[bool]:
        return False if name == "n1" else None

    assert all(verdict == loss.Verdict() for verdict in Play(3, story, always_off("n1")).verdicts(100))
    assert Play(3, dead, always_off("n1")).verdicts(20)[-1] == loss.Verdict(withheld=loss.CUT_OFF)


def test_an_overloaded_node_answers_late_now_and_then() -> None:
    """Most probes miss their time, for minutes, and one in twenty does not."""

    def story(second: int, name: str) -> bool:
        return name != "n1" or second % 20 == 0

    assert all(verdict == loss.Verdict() for verdict in Play(3, story).verdicts(600))


@pytest.mark.parametrize("count", [3, 288])
@pytest.mark.parametrize("rate", [0.05, 0.3, 0.6])
def test_packets_that_are_lost_at_random_lose_no_node(count: int, rate: float) -> None:
    """A node misses a round when all of its four packets, or their answers, are lost."""
    chance = random.Random(4711)
    miss = (1 - (1 - rate) ** 2) ** 4
    said = Play(count, lambda second, name: chance.random() >= miss, rules=Rules(60.0, 1000)).verdicts(300)
    assert first(said, "silent") is None
    assert first(said, "dead") is None


def test_what_is_not_a_candidate_bears_witness_only() -> None:
    tracks = {
        "n1": loss.Track(misses=9, silent_since=0.0, off_at=99.0),
        "n2": loss.Track(answers=True),
        "n3": loss.Track(answers=True),
    }
    assert loss.judge(tracks, ["n2", "n3"], RULES, 100.0) == loss.Verdict()
    assert loss.judge(tracks, ["n1", "n2", "gone"], RULES, 100.0).dead == ("n1",)
