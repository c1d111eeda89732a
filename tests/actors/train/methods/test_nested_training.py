"""The trainer of nested drafts: what it learns, that it goes on where it was, and what it leaves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from tests.actors.draft.methods.small_nested import VOCAB, cut_off
from transformers import AutoModelForCausalLM

from outrider.actors.draft.choice.drafter_registry import loading_method
from outrider.actors.engine.engine_settings import EngineSettings
from outrider.actors.engine.nested.load_nested import load_nested
from outrider.actors.train.features.output_layer import product
from outrider.actors.train.features.training_rows import HeldOut
from outrider.actors.train.methods.sorted_trainer import run
from outrider.actors.train.nested.nested_evaluation import exit_reports
from outrider.actors.train.nested.nested_objective import exit_states, nested_loss
from outrider.actors.train.nested.nested_options import NestedTrainingOptions


def test_exits_are_those_of_the_model_cut_off() -> None:
    """The final norm stands before the head at each, as where the layers behind are not there."""
    tokens = torch.randint(VOCAB, (2, 9), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        for layers, states in zip(
            (1, 2, 4), exit_states(cut_off(4), tokens, (1, 2, 4)), strict=True
        ):
            expected = cut_off(layers)(input_ids=tokens, use_cache=False).logits
            # Some processors multiply in bfloat16 here.
            torch.testing.assert_close(cut_off(4).lm_head(states), expected, rtol=0.0, atol=0.1)


def test_every_exit_is_taught_the_law_of_the_target() -> None:
    """The loss is nothing where an exit has the target's law, adds up over exits, and reaches no layer behind the deepest."""
    model = cut_off(4)
    tokens = torch.randint(VOCAB, (2, 9), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        states = exit_states(model, tokens, (2,))[0]
    head = model.lm_head.weight.detach()
    both = [
        float(nested_loss(model, tokens, states, product(head), (one,)).detach()) for one in (1, 2)
    ]
    assert both[1] == pytest.approx(0.0, abs=2e-3)
    assert both[0] > 0.01
    loss = nested_loss(model, tokens, states, product(head), (1, 2))
    assert float(loss.detach()) == pytest.approx(sum(both), rel=1e-5)
    loss.backward()  # type: ignore[no-untyped-call]
    assert model.model.layers[0].mlp.down_proj.weight.grad is not None
    assert model.model.layers[2].mlp.down_proj.weight.grad is None


@torch.no_grad()
def test_reports_tell_what_each_exit_and_each_threshold_accepts() -> None:
    """An exit with the target's law agrees everywhere; thresholds 0 and 1 are the first and the last exit."""
    model = cut_off(4)
    tokens = torch.randint(VOCAB, (3, 12), generator=torch.Generator().manual_seed(1))
    held = HeldOut(tokens, exit_states(model, tokens, (2,))[0], 4)
    reports = exit_reports(model, held, product(model.lm_head.weight), (1, 2), (0.0, 0.1, 1.0))
    assert reports["exit 2"].first > 0.9
    assert reports["exit 2"].overlap == pytest.approx(1.0, abs=0.02)
    assert reports["exit 1"].overlap < 0.95
    assert reports["confidence 0"] == reports["exit 1"]
    assert reports["confidence 1"] == reports["exit 2"]
    assert 1.0 < reports["confidence 0.1"].layers < 2.0


def options_of(data: Path, out: Path, **given: object) -> NestedTrainingOptions:
    """A training of seconds on the shipped target."""
    small = {
        "steps": 3,
        "exits": (1, 3),
        "width": 16,
        "num_heads": 2,
        "num_key_heads": 1,
        "inner": 16,
        "text_rows": 8,
        "own_rows": 8,
        "row_length": 16,
        "prompt_length": 6,
        "rows_per_step": 2,
        "minutes": 0.0,
        "device": "cpu",
    }
    return NestedTrainingOptions(data=data, out=out, **{**small, **given})  # type: ignore[arg-type]


def test_training_from_files_to_a_folder_that_loads_in_both_ways(
    tiny_data: Path, tmp_path: Path
) -> None:
    """With its exits, and as a plain model; measured beside models of each size; done again, nothing is; a longer run goes on."""
    result = run(options_of(tiny_data, tmp_path, separate=True))
    acceptance = result.report["acceptance"]
    assert list(acceptance) == ["text", "own, greedy", "own, T = 1"]
    alone = {"1 layers, trained alone", "3 layers, trained alone"}
    assert {"exit 1", "exit 3", "confidence 0.5", *alone} <= set(acceptance["text"])
    assert json.loads((tmp_path / "report.json").read_text()) == acceptance
    folder = tmp_path / "sorted"
    assert loading_method(str(folder)) == "sorted"
    card = (folder / "README.md").read_text()
    assert "2407.01955" in card
    assert "--text-rows 8 --own-rows 8 --row-length 16" in card
    assert "The embedding began as the target's" in card
    nested = load_nested(EngineSettings(model=str(folder), num_slots=1, max_context=32))
    assert nested.exits == (1, 3)
    plain = AutoModelForCausalLM.from_pretrained(folder)
    assert plain.config.num_hidden_layers == 3
    assert run(options_of(tiny_data, tmp_path, separate=True)).report == result.report
    before = plain.model.layers[0].mlp.down_proj.weight
    run(options_of(tiny_data, tmp_path, steps=5))
    after = AutoModelForCausalLM.from_pretrained(folder).model.layers[0].mlp.down_proj.weight
    assert not torch.equal(before, after)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"exits": (2, 1)}, "exits"),
        ({"exits": ()}, "exits"),
        ({"width": 0}, "width"),
        ({"num_heads": 3}, "num_heads"),
        ({"num_key_heads": 3}, "num_key_heads"),
        ({"prompt_length": 16}, "prompt_length"),
    ],
)
def test_options_that_make_no_model_are_refused(
    given: dict[str, object], field: str, tmp_path: Path
) -> None:
    """With the field's name."""
    with pytest.raises(ValueError, match=field):
        options_of(tmp_path, tmp_path, **given)
