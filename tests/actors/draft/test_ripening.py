"""How far a tree grows while the target waits for it: as long as a draft pass promises more than the target commits meanwhile."""

from __future__ import annotations

import pytest

from outrider.actors.draft.ripening import CHILD_VALUE, ROW_SHARE, Ripening
from outrider.actors.draft.tree import ROOT, DraftTree

DRAFT_S = 0.001


def chain(*estimates: float) -> DraftTree:
    """One node below the other, all run but the last."""
    tree = DraftTree()
    tree.is_expanded = True
    node = ROOT
    for row, estimate in enumerate(estimates):
        node = tree.add(node, row, estimate, (0,))
        tree.scratch[node] = row
    if estimates:
        tree.scratch[node] = -1
    return tree


def test_before_the_root_was_run_nothing_is_known() -> None:
    """The text itself is not in the draft model yet."""
    assert not Ripening(pass_s=0.025).is_ripe(DraftTree(), DRAFT_S)


def test_nothing_to_run_is_ripe() -> None:
    """Every node was run: no pass can add anything."""
    assert Ripening(pass_s=0.025).is_ripe(chain(), DRAFT_S)


@pytest.mark.parametrize("pass_s", [0.0, 0.002, 0.025, 0.3])
def test_the_line_is_where_gain_and_loss_are_equal(pass_s: float) -> None:
    """A leaf's best child less what its row takes, against the target's pace in the time of a draft pass."""
    ripening = Ripening(tokens=3.0, pass_s=pass_s)
    loss = 3.0 * DRAFT_S / pass_s if pass_s else 1e9
    at = (loss + ROW_SHARE * 3.0) / CHILD_VALUE
    if at < 0.99:
        assert not ripening.is_ripe(chain(at + 0.01), DRAFT_S)
    assert ripening.is_ripe(chain(min(at - 0.01, 1.0)), DRAFT_S)


def test_slow_targets_get_deeper_trees() -> None:
    """The same chain is grown longer for a target whose pass takes longer."""

    def depth(pass_s: float) -> int:
        ripening, levels = Ripening(tokens=3.0, pass_s=pass_s), 1
        while not ripening.is_ripe(chain(*[0.8] * levels), DRAFT_S):
            levels += 1
        return levels

    depths = [depth(pass_s) for pass_s in (0.003, 0.006, 0.012, 0.025, 0.1)]
    assert depths == sorted(depths)
    assert depths[0] == 1
    assert depths[-1] >= 5


def test_leaves_count_together_and_rows_that_do_not_pay_count_nothing() -> None:
    """Two likely leaves are worth a pass that one of them is not; a hundred hopeless ones are not."""
    ripening = Ripening(tokens=3.0, pass_s=0.025)
    one, two, many = chain(), chain(), chain()
    one.add(ROOT, 0, 0.25, (0,))
    for token in range(2):
        two.add(ROOT, token, 0.25, (0,))
    for token in range(100):
        many.add(ROOT, token, ROW_SHARE, (0,))
    assert ripening.is_ripe(one, DRAFT_S)
    assert not ripening.is_ripe(two, DRAFT_S)
    assert ripening.is_ripe(many, DRAFT_S)


def test_what_verdicts_say_is_remembered() -> None:
    """Tokens as a running mean, the pass as it was last."""
    ripening = Ripening()
    for _ in range(40):
        ripening.observe(5, 0.02)
    ripening.observe(5, 0.03)
    assert ripening.tokens == pytest.approx(5.0, abs=0.01)
    assert ripening.pass_s == 0.03
