"""The pure parts of the verifiers' suite, and its rounds on models small enough to know everything about."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from bench.__main__ import run_suite
from bench.figures import machine
from bench.report import rows as results
from bench.report import verifier_tables, written_report
from bench.running.bench_prompts import Prompt
from bench.verifiers import bounds, cost, nodes, suite
from bench.verifiers.contexts import Models, contexts, probs_of
from bench.verifiers.optimum import best_acceptance_identical
from bench.verifiers.rounds import SHAPES, Job, rounds_of
from bench.verifiers.suite import told
from bench.verifiers.tally import Tally, ratio_of
from bench.verifiers.toys import toys
from bench.verifiers.trees import Growing, Kind, as_sent, dense, grow
from outrider.actors.engine.engine_settings import EngineSettings
from outrider.actors.engine.tables.tabular_engine import Table, TabularEngine, random_table
from outrider.actors.frozen.law_frame import FrozenTree
from outrider.actors.frozen.sparse_rows import SparseRow
from outrider.actors.speculation.choice.verifier_registry import VERIFIERS
from outrider.actors.speculation.trees.draft_tree import DraftTree, Replacement
from outrider.actors.speculation.trees.level_shapes import parse
from outrider.cluster.text.text_tokenizer import PretrainedCodec

TARGET, DRAFT = np.array([0.4, 0.3, 0.2, 0.1]), np.array([0.1, 0.2, 0.3, 0.4])
VOCAB = 16


class Letters:
    """A tokenizer of small numbers."""

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """One token a digit."""
        return [int(letter) for letter in text]


def models(target: Table, draft: Table) -> Models:
    """Two tables as a pair."""
    first, second, third = (
        TabularEngine(table, EngineSettings(model="tabular:x", num_slots=4, max_scratch=1024))
        for table in (target, draft, draft)
    )
    codec = cast(PretrainedCodec, Letters())
    return Models(target=first, draft=second, drafter=third, codec=codec)


PROMPT = Prompt(id=3, category="digits", text="120", messages=None)


def test_ratio_of_sums() -> None:
    """The ratio of the totals; equal groups leave no error, unequal ones that of their spread."""
    assert ratio_of([(1.0, 2.0), (2.0, 4.0)]) == (0.5, 0.0)
    rng = np.random.default_rng(0)
    draws = rng.normal(3.0, 1.0, (400, 50))
    errors = [ratio_of([(float(x), 1.0) for x in row])[1] for row in draws]
    assert np.mean(errors) == pytest.approx(1 / np.sqrt(50), rel=0.05)


def test_tallies_add_up_and_merge() -> None:
    """Counts, sums over sums, and paired losses."""
    tally, other = Tally(), Tally()
    for prompt, kept in ((1, 4.0), (2, 8.0)):
        (tally if prompt == 1 else other).add(("cut",), prompt, kept, 10.0)
        (tally if prompt == 1 else other).add(("whole",), prompt, kept * 1.25, 10.0)
    tally.merge(other)
    assert tally.count(("cut",)) == 2
    assert tally.ratio(("cut",), 1, 2)[0] == pytest.approx(0.6)
    assert tally.mean_row(("cut",)).tolist() == [6.0, 10.0]
    lost, error = tally.relative_loss(("cut",), ("whole",), 1, 2)
    assert lost == pytest.approx(0.2)
    assert error == pytest.approx(0.0, abs=1e-12)


def test_rates_of_one_node() -> None:
    """The running example: closed forms to rounding, drawn ones to their error, nobody above the optimum."""
    rng = np.random.default_rng(5)
    found = [nodes.rates(TARGET, DRAFT, rng, (1, 2, 3)) for _ in range(300)]
    means = {key: float(np.mean([rates[key] for rates in found])) for key in found[0]}
    assert means["mcsd_with_replacement", 2] == pytest.approx(0.72)
    assert means["kseq", 2] == pytest.approx(0.75)
    assert means["canonical", 3] == pytest.approx(0.871)
    assert means["exact_match", 2] == pytest.approx(0.3)
    assert means["exact_match, drawn", 2] == pytest.approx(0.35)
    assert means["mcsd_without_replacement", 2] == pytest.approx(0.7642857, abs=0.02)
    assert means["mcsd_without_replacement", 3] == pytest.approx(0.8402976, abs=0.02)
    assert means["coupled", 1] == pytest.approx(0.542857, abs=0.04)
    for k in (1, 2, 3):
        for name in ("coupled", "mcsd_without_replacement"):
            assert means[name, k] <= means["optimum, distinct", k] + 0.04


def leaves(tokens: Sequence[int]) -> FrozenTree:
    """A tree of one level."""
    row = SparseRow(ids_K=np.arange(4, dtype=np.uint32), weights_K=DRAFT)
    tree = DraftTree(
        tokens_N=tuple(tokens),
        parents_N=(-1,) * len(tokens),
        sources_N=(0,) * len(tokens),
        replacement=Replacement.WITH,
    )
    return FrozenTree(tree=tree, rows=(row,))


@pytest.mark.parametrize("k", [1, 2, 3])
def test_the_bound_of_one_level_is_the_optimum(k: int) -> None:
    """With the whole law in the place of a sample, as far as the grid of thresholds goes."""
    rows = np.tile(TARGET, (k + 1, 1))
    target, all_ = np.zeros(len(bounds.THRESHOLDS)), np.zeros(len(bounds.THRESHOLDS))
    for tokens in product(range(4), repeat=k):
        chance = float(DRAFT[list(tokens)].prod())
        (ratios,) = bounds.path_ratios(leaves(tokens), range(k), rows)
        target += chance * bounds.target_within(ratios)
        all_ += chance * bounds.all_within(ratios)
    best = best_acceptance_identical(TARGET, DRAFT, k)
    assert best - 1e-9 <= bounds.bound(target, all_) <= best + 1e-9


def test_ratios_are_those_of_whole_paths() -> None:
    """Products of target / draft from the context down, by depth."""
    row = SparseRow(ids_K=np.arange(4, dtype=np.uint32), weights_K=DRAFT)
    tree = DraftTree(tokens_N=(3, 0, 1), parents_N=(-1, 0, -1), sources_N=(0, 1, 0))
    by_depth = bounds.path_ratios(FrozenTree(tree=tree, rows=(row, row)), (5, 6, 7), [TARGET] * 9)
    assert by_depth == [pytest.approx([0.25, 1.5]), pytest.approx([1.0])]


def test_contexts_follow_the_targets_text() -> None:
    """Each context is a prefix of one text, and `following` is how that text goes on."""
    pair = models(random_table(VOCAB, 2, seed=1), random_table(VOCAB, 2, seed=2))
    found = [
        (list(c.tokens), list(c.following))
        for c in contexts(pair, PROMPT, temperature=0.8, count=3, stride=2)
    ]
    whole = found[-1][0] + found[-1][1]
    for tokens, following in found:
        assert whole[: len(tokens)] == tokens
        assert whole[len(tokens) :][: len(following)] == following[: len(whole) - len(tokens)]
    assert [len(tokens) for tokens, _ in found] == [3, 5, 7]
    assert pair.target.num_free == pair.draft.num_free == 4


def test_trees_get_the_rows_of_their_own_paths() -> None:
    """The target's row of every node is that of the text down to it, in whichever order the trees were drawn."""
    table = random_table(VOCAB, 2, seed=1)
    pair = models(table, random_table(VOCAB, 2, seed=2))
    for context in contexts(pair, PROMPT, temperature=1.0, count=2, stride=3):
        trees = [
            Growing(kind=kind, shape=parse(shape), law_of=law, seed=(7,))
            for kind in Kind
            for shape, law in (("3,2", dense), ("1,1,1", as_sent))
        ]
        probs_UV = grow(pair, context, trees, 1.0)
        for tree in trees:
            for node, place in enumerate(tree.places):
                path, at = [], node
                while at >= 0:
                    path.append(tree.tokens[at])
                    at = tree.parents[at]
                text = [*context.tokens, *path[::-1]]
                expected = np.exp(table.log_probs[text[-2], text[-1]])
                assert probs_UV[place + 1] == pytest.approx(expected, rel=1e-5)
            if tree.kind in (Kind.INDEPENDENT, Kind.DISTINCT):
                assert tree.frozen().tree.num_nodes == len(tree.tokens)


def job(temperature: float) -> Job:
    """Two contexts of one prompt."""
    return Job(
        target="", draft="", temperature=temperature, prompts=(PROMPT,), contexts=2, stride=2
    )


def test_equal_models_accept_everything() -> None:
    """With whole rows verifiers keep whole paths, and so does `coupled`; the bound is no less."""
    table = random_table(VOCAB, 2, seed=4)
    tally = rounds_of(models(table, table), job(1.0))
    for shape in SHAPES:
        assert tally.ratio(("round", str(shape), "coupled", "shape"))[0] == shape.depth
    kept = {key: tally.ratio(key)[0] for key in tally.sums if str(key).startswith("('whole'")}
    assert len(kept) > 10
    for key, value in kept.items():
        assert value == parse(str(key).split("'")[3]).depth, key
    for cell in told(tally)["bounds"]:
        assert cell["tokens_per_pass"] <= parse(cell["shape"]).depth + 1


def test_greedy_rounds_follow_the_most_probable_tokens() -> None:
    """A model drafting for itself is right at every depth."""
    table = random_table(VOCAB, 2, seed=4)
    layers = told(rounds_of(models(table, table), job(0.0)))
    by_tree = {(c["shape"], c["tree"]): c["tokens_per_pass"] for c in layers["rounds"]}
    assert by_tree["1,1,1,1", "shape"] == 5.0
    assert by_tree["2,2", "shape"] == 3.0
    assert by_tree["2,2", "own"] > 1.0


def test_probabilities_are_float64_rows() -> None:
    """That sum to 1."""
    import torch

    assert probs_of(torch.tensor([[0.0, 1.0, 2.0]]), 0.5).sum() == pytest.approx(1.0, abs=1e-15)


def test_published_toys_are_reproduced() -> None:
    """Every figure, to the digits that were published."""
    found = list(toys())
    assert len(found) > 60
    for toy in found:
        assert toy.ours == pytest.approx(toy.published, abs=6e-5), toy.what


def test_tables_hold_what_was_measured() -> None:
    """Every block renders, the page's markers name blocks, and nothing is told of a suite that was not run."""
    table, other = random_table(VOCAB, 2, seed=4), random_table(VOCAB, 2, seed=5)
    about = {"machine": {"torch": "2", "commit": "abc"}, "date": "today"}
    rows = [
        {
            "layer": layer,
            "temperature": t,
            "target": "demo:target",
            "draft": "demo:draft",
            "prompts": 1,
            "contexts": 2,
            "cells": cells,
            **about,
        }
        for t in (0.0, 1.0)
        for layer, cells in told(rounds_of(models(table, other), job(t))).items()
    ]
    text = verifier_tables.rounds(rows)
    assert "**chain of 4, 4 candidates a round**" in text
    assert "any verifier of distinct siblings" in text
    assert "**Temperature 0**" in text
    assert "| 1 candidate | 2 candidates |" in verifier_tables.nodes(rows)
    assert "(as sent)" in verifier_tables.cuts(rows)
    assert "| chain of 4 | - | 4 | 1536 |" in verifier_tables.sizes(rows)
    assert "| `4,2,1` | distinct | 13 | 4992 |" in verifier_tables.sizes(rows)
    for tell in verifier_tables.BLOCKS.values():
        assert tell([]) == ""
    named = [page for page in written_report.PAGES if page.name.startswith("verifiers")]
    pages = "\n".join(page.read_text(encoding="utf-8") for page in named)
    marks = dict.fromkeys(written_report.BLOCKS, "y") | dict.fromkeys(verifier_tables.BLOCKS, "x")
    assert written_report.filled(pages, marks).count("\nx\n") == len(verifier_tables.BLOCKS)
    assert "any verifier of distinct siblings" in verifier_tables.BLOCKS["verifiers-rounds"](rows)
    others = [{**row, "target": "mine"} for row in rows]
    assert all(tell(others) == "" for tell in verifier_tables.BLOCKS.values())
    assert verifier_tables.rounds(verifier_tables.of_pair(others, "mine", "demo:draft")) == text


def test_rows_of_one_pair_leave_those_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pair's own are replaced; rows that are of no pair are replaced by whoever measures them."""
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    monkeypatch.setattr(machine, "WORK_MIB", 1)
    monkeypatch.setattr(suite, "measure", lambda **_: Tally())
    monkeypatch.setattr(
        suite, "told", lambda tally: {"rounds": [{"run": len(results.read("verifiers"))}]}
    )
    monkeypatch.setattr(suite, "toys", list)
    for target in ("demo:target", "mine", "mine"):
        options = {"target": target, "temperatures": [0.8], "parts": ["toys", "rounds"]}
        run_suite("verifiers", options)
    found = {
        (row["layer"], row["target"], row["draft"]): row["cells"]
        for row in results.read("verifiers")
    }
    assert found == {
        ("rounds", "demo:target", "demo:draft"): [{"run": 1}],
        ("toys", None, None): [],
        ("rounds", "mine", "demo:draft"): [{"run": 3}],
    }


def test_costs_are_told_by_vocabulary() -> None:
    """One line for each verifier and tree that it takes."""
    about = {"machine": {"torch": "2", "commit": "abc"}, "date": "today"}
    found = list(cost.cells((50, 700), num_rounds=1))
    rows = [{"layer": "cost", "temperature": None, "cells": found, **about}]
    lines = verifier_tables.cost(rows).splitlines()
    assert lines[0].endswith("| 50 tokens | 700 tokens |")
    assert sum("| chain of 32 | 32 |" in line for line in lines) == 2
    trees = [one for one in VERIFIERS.values() if not one.is_chain_only and not one.shares_noise]
    assert sum("| `16,1` | 32 |" in line for line in lines) == len(trees)
    assert {cell["nodes"] for cell in found} == {28, 32}
