"""Whether to speculate, decided by comparing paces."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import groupby, pairwise

import pytest

from outrider.actors.target.governor import HELD_ROUNDS, Governor
from outrider.actors.target.trials import (
    CROWD_ROUNDS,
    FIRST_CROWD_TRIAL_GAP,
    FIRST_LATE_GAP,
    LAST_TRIAL_GAP,
    LATE_ROUNDS,
    MOST_LOST,
    MOST_LOST_SHARE,
    PLAIN_ROUNDS,
    SETTLING_ROUNDS,
    TRIAL_ROUNDS,
    TRIAL_SHARE,
)


def run(
    governor: Governor,
    rounds: int,
    *,
    plain_s: float = 1.0,
    round_s: float = 1.0,
    tokens: Sequence[int] = (1, 2, 3, 4),
    sessions: int = 1,
    seed: int = 0,
) -> tuple[float, float]:
    """Rounds under fixed laws; tokens a second that came of them, and how many rounds speculated."""
    draws = random.Random(seed)
    seconds, committed, speculative = 0.0, 0, 0
    for _ in range(rounds):
        governor.enter(sessions)
        if governor.speculates:
            speculative += 1
            got, took = sessions * draws.choice(tokens), round_s
        else:
            got, took = sessions, plain_s
        took *= draws.uniform(0.9, 1.1)
        governor.observe(got, took)
        seconds, committed = seconds + took, committed + got
    return committed / seconds, speculative / rounds


def won_in_a_crowd() -> Governor:
    """Sixteen sessions were tried and are served well."""
    governor = Governor()
    run(governor, FIRST_CROWD_TRIAL_GAP + 4 * CROWD_ROUNDS, sessions=16)
    assert governor.speculates
    return governor


@pytest.mark.parametrize("round_s", [1.0, 1.5, 2.0])
def test_speculation_that_pays_goes_on(round_s: float) -> None:
    """Where rounds commit 2.5 tokens in up to twice the time, almost all of them speculate."""
    pace, share = run(Governor(), 6000, round_s=round_s)
    assert share > 0.95
    assert pace > 0.97 * 2.5 / round_s


@pytest.mark.parametrize("round_s", [3.0, 4.0, 8.0])
def test_speculation_that_loses_is_turned_off(round_s: float) -> None:
    """Where rounds cost more than they commit, the pace stays near that of plain decoding."""
    pace, share = run(Governor(), 20_000, round_s=round_s)
    assert share < 0.06
    assert pace > 0.97 * (1.0 if round_s < 5.0 else 0.93)


def test_a_change_of_the_machine_is_noticed_both_ways() -> None:
    """Turned off when drafting becomes dear, and on again when it becomes cheap."""
    governor = Governor()
    run(governor, 2000, round_s=1.5)
    assert run(governor, 4000, round_s=4.0)[1] < 0.5
    assert run(governor, 400, round_s=4.0)[1] < 0.2
    run(governor, 2 * LAST_TRIAL_GAP, round_s=1.5)
    assert run(governor, 2000, round_s=1.5)[1] > 0.9


def test_a_machine_that_slows_down_evenly_changes_nothing() -> None:
    """Paces of different times are not compared: when both ways slow down twofold, nothing changes."""
    governor = Governor()
    shares = []
    for phase in range(40):
        factor = 1.0 if phase % 2 else 2.0
        shares.append(run(governor, 300, plain_s=factor, round_s=1.5 * factor, seed=phase)[1])
    # A comparison that the change itself interrupts may go wrong; the next one sets it right.
    assert sum(shares) / len(shares) > 0.85


def test_each_load_has_its_own_answer() -> None:
    """Off at 32 sessions, on at one, at the same time."""
    governor = Governor()
    for phase in range(30):
        run(governor, 200, round_s=1.5, seed=phase)
        run(governor, 200, round_s=4.0, sessions=32, seed=phase)
    assert run(governor, 200, round_s=1.5)[1] > 0.85
    assert run(governor, 200, round_s=4.0, sessions=32)[1] < 0.3


def test_at_a_high_load_few_rounds_decide() -> None:
    """With 64 sessions a losing way is off before a second request of fifty tokens begins, and a winning one stays on."""
    lost = [
        run(won_in_a_crowd(), 100, round_s=4.0, sessions=64, seed=seed)[1] for seed in range(20)
    ]
    assert max(lost) < 0.4
    won = [run(won_in_a_crowd(), 100, round_s=1.5, sessions=64, seed=seed)[1] for seed in range(20)]
    assert min(won) > 0.6


@pytest.mark.parametrize("sessions", [9, 16, 32, 64])
def test_a_crowd_that_was_never_seen_begins_plainly(sessions: int) -> None:
    """Whether a service is fresh or speculates with fewer: what drafters lose until it is found out is not lost."""
    few = Governor()
    run(few, 200, round_s=1.5, sessions=8)
    assert few.speculates
    for governor in (Governor(), few):
        assert run(governor, 400, round_s=4.0, sessions=sessions)[1] == 0.0
        assert run(governor, 4000, round_s=4.0, sessions=sessions)[1] < 0.03


def test_few_sessions_that_were_never_seen_begin_with_candidates() -> None:
    """From the first round on, whatever came before: one, two, four, eight."""
    governor = Governor()
    for sessions in (1, 2, 4, 8):
        governor.enter(sessions)
        assert governor.speculates


@pytest.mark.parametrize("sessions", [9, 16, 32, 64])
def test_a_crowd_that_drafters_serve_well_gets_them(sessions: int) -> None:
    """The first trial wins, and from then on nearly every round speculates; a larger crowd begins so."""
    governor = Governor()
    run(governor, FIRST_CROWD_TRIAL_GAP + 2 * CROWD_ROUNDS, round_s=1.5, sessions=sessions)
    assert governor.speculates
    assert run(governor, 2000, round_s=1.5, sessions=sessions)[1] > 0.9
    governor.enter(2 * sessions)
    assert governor.speculates


def test_a_load_that_flickers_does_not_stop_the_comparison() -> None:
    """With sessions that come and go every twelve rounds the losing way is still found."""
    governor = Governor()
    shares = [
        run(governor, 12, round_s=4.0, sessions=4 if phase % 2 else 5, seed=phase)[1]
        for phase in range(400)
    ]
    assert sum(shares[200:]) / 200 < 0.06


def test_a_clock_that_stands_still_changes_nothing() -> None:
    """Rounds without time are not counted."""
    governor = Governor()
    for _ in range(1000):
        governor.observe(1, 0.0)
    assert governor.speculates


def test_a_comparison_is_short() -> None:
    """The other way runs for its rounds and no longer."""
    governor = Governor()
    longest = stretch = 0
    for _ in range(5000):
        governor.enter(1)
        stretch = 0 if governor.speculates else stretch + 1
        longest = max(longest, stretch)
        governor.observe(3 if governor.speculates else 1, 1.0)
    assert PLAIN_ROUNDS <= longest <= PLAIN_ROUNDS + 2 < TRIAL_ROUNDS


def late(governor: Governor, rounds: int, *, in_time_every: int = 0) -> list[bool]:
    """Rounds whose candidates come too late, but for every so many; whether each speculated."""
    modes = []
    for turn in range(1, rounds + 1):
        governor.enter(1)
        modes.append(governor.speculates)
        is_late = not in_time_every or turn % in_time_every != 0
        governor.observe(1, 1.0, is_late=is_late if governor.speculates else None)
    return modes


def stretches(modes: Sequence[bool], mode: bool) -> list[int]:
    """Lengths of the stretches of rounds in one mode."""
    return [len(list(group)) for key, group in groupby(modes) if key is mode]


def test_candidates_that_are_always_late_end_speculation_without_a_comparison() -> None:
    """After 64 rounds, though the paces are equal; trials are short and come later and later."""
    modes = late(Governor(), 6000)
    first = modes.index(False, LATE_ROUNDS + PLAIN_ROUNDS)
    assert first <= LATE_ROUNDS + 2 * (PLAIN_ROUNDS + SETTLING_ROUNDS)
    assert not any(modes[first : first + FIRST_LATE_GAP])
    assert max(stretches(modes[first:], mode=True)) <= TRIAL_ROUNDS + SETTLING_ROUNDS
    gaps = stretches(modes[first:], mode=False)[:-1]
    assert all(later >= 1.9 * gap for gap, later in pairwise(gaps))
    assert len(gaps) >= 3


def test_a_trial_that_seems_won_without_any_candidate_is_lost() -> None:
    """The machine happened to be faster for thirty rounds: drafters that are too late are not woken for that."""
    governor = Governor()
    late(governor, LATE_ROUNDS + 20)
    assert not governor.speculates
    for _ in range(FIRST_LATE_GAP + TRIAL_ROUNDS + 20):
        governor.enter(1)
        governor.observe(
            1, 0.8 if governor.speculates else 1.0, is_late=governor.speculates or None
        )
    assert not governor.speculates


def test_drafters_that_are_late_no_more_are_used_again() -> None:
    """The next trial finds out."""
    governor = Governor()
    late(governor, LATE_ROUNDS + 20)
    assert not governor.speculates
    run(governor, FIRST_LATE_GAP + TRIAL_ROUNDS + 20, round_s=1.5)
    assert run(governor, 100, round_s=1.5)[1] > 0.9


def test_candidates_that_are_hardly_ever_in_time_end_speculation_too() -> None:
    """One use in twenty rounds does not pay for drafting in the others, whatever a comparison that sees it says."""
    modes = late(Governor(), 3000, in_time_every=20)
    first = next(i for i in range(len(modes)) if not any(modes[i : i + FIRST_LATE_GAP]))
    assert first <= 2 * LATE_ROUNDS
    assert sum(modes[first:]) < 0.1 * len(modes[first:])


@pytest.mark.parametrize("in_time_every", [2, 5, 8])
def test_candidates_that_are_often_late_change_nothing(in_time_every: int) -> None:
    """Whether they pay is left to comparisons."""
    modes = late(Governor(), 3000, in_time_every=in_time_every)
    assert max(stretches(modes, mode=False)) <= PLAIN_ROUNDS + SETTLING_ROUNDS


def test_drafters_with_nothing_to_propose_are_not_late() -> None:
    """Whether they pay is left to comparisons."""
    governor, modes = Governor(), []
    for _ in range(600):
        governor.enter(1)
        modes.append(governor.speculates)
        governor.observe(1, 1.0, is_late=None)
    assert max(stretches(modes, mode=False)) <= PLAIN_ROUNDS + SETTLING_ROUNDS


@pytest.mark.parametrize("sessions", [16, 64])
def test_a_trial_that_is_too_dear_is_ended(sessions: int) -> None:
    """Drafters of a crowd that slow everything down while they run its prompts: the first trial loses little more than it may."""
    governor = Governor()
    lost, modes = 0.0, []
    for _ in range(2 * FIRST_CROWD_TRIAL_GAP):
        governor.enter(sessions)
        modes.append(governor.speculates)
        took = 3.0 if governor.speculates else 1.0
        governor.observe(sessions, took, is_counted=not governor.speculates)
        lost += took - 1.0
    most = max(MOST_LOST, MOST_LOST_SHARE * FIRST_CROWD_TRIAL_GAP)
    assert most < lost < most + 4.0
    assert len(stretches(modes, mode=True)) == 1


def test_trials_lose_little_however_dear_they_are() -> None:
    """Catching up takes as long as forty rounds: trials become so seldom that plain decoding loses one part in a hundred."""
    governor = Governor()
    seconds = lost = 0.0
    was_trying = False
    for turn in range(30_000):
        governor.enter(16)
        is_trying = governor.speculates
        if is_trying and not was_trying:
            governor.observe(16, 41.0, is_counted=False)
            seconds, lost = seconds + 41.0, lost + (40.0 if turn > 500 else 0.0)
        governor.observe(16, 1.1 if is_trying else 1.0)
        seconds, lost = seconds + 1.0, lost + 0.1 * is_trying
        was_trying = is_trying
    assert lost < 1.5 * TRIAL_SHARE * seconds


def test_a_win_that_does_not_last_is_tried_less_and_less() -> None:
    """Trials that win though speculation loses in the long run do not make the service flap."""
    governor = Governor()
    run(governor, 100, round_s=4.0, sessions=8)
    speculated = [0, 0]
    fresh = rested = 0
    for turn in range(20_000):
        governor.enter(8)
        rested = 0 if governor.speculates else rested + 1
        fresh = 30 if rested >= 30 else max(fresh - governor.speculates, 0)
        # Well for thirty rounds after a rest, then badly.
        governor.observe((24 if fresh else 12) if governor.speculates else 16, 1.0)
        speculated[turn >= 10_000] += governor.speculates
    assert speculated[1] < 0.03 * 10_000
    assert speculated[0] < 0.1 * 10_000


def test_a_small_loss_at_a_high_load_is_no_matter_of_doubt() -> None:
    """One comparison turns off what loses a tenth with 64 sessions; for one session two must say so."""
    many = run(won_in_a_crowd(), 120, round_s=2.8, sessions=64)[1]
    one = run(Governor(), 70, round_s=2.8, sessions=1)[1]
    assert many < 0.4
    assert one > 0.8


def test_a_moment_with_fewer_sessions_wakes_nobody() -> None:
    """At 32 drafters rest, at four they would not; a dip of a few rounds changes nothing, a lasting one does."""
    governor = Governor()
    run(governor, 200, round_s=1.5, sessions=4)
    run(governor, 300, round_s=4.0, sessions=32)
    assert not governor.speculates
    for _ in range(HELD_ROUNDS - 1):
        governor.enter(4)
        assert not governor.speculates
    governor.enter(32)
    for _ in range(HELD_ROUNDS):
        governor.enter(4)
    assert governor.speculates


def test_after_a_pause_a_load_counts_at_once() -> None:
    """A single request after a crowd that has left is no dip."""
    governor = Governor()
    run(governor, 300, round_s=4.0, sessions=32)
    assert not governor.speculates
    governor.pause()
    governor.enter(1)
    assert governor.speculates
