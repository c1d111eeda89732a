"""Architectures past their windows: plain logits in float32, or refused with the reason, in half precision as well."""

from __future__ import annotations

import re

import pytest

from bench.families.families_suite import judge
from outrider.actors.engine.probe import probe_layers

EXACT = (
    "llama",
    "gemma2",
    "gemma3_text",
    "gpt_oss",
    "cohere2",
    "exaone4",
    "gemma4_unified_text",
    "mistral",
    "modernbert-decoder",
    "olmoe",
    "olmoe, sliding_window set",
    "opt",
    "phimoe",
    "qwen2_moe",
)

REFUSED = {
    "axk1": "its keys are changed after the cache has taken them",
    "diffllama": "its values are changed after the cache has taken them",
    "doge": "adds numbers of its own to the scores of attention",
    "gemma3_text, bidirectional": "lets rows see later rows",
    "gemma3n_text": "layers that share keys and values",
    "jetmoe": r"its keys are changed .* \(2 heads of 128 numbers cached, 4 heads of 128 numbers attended to\)",
    "llama4_text, full layers only": "the attention of layer 3 differs from what it is when the cache tells its length",
    "roberta": "positions of its own, which do not count from 0",
}


@pytest.mark.parametrize("name", EXACT)
def test_plain_logits_past_the_window(name: str) -> None:
    """Chunked prefill, trees and compaction give what plain transformers gives; bfloat16 loads, too."""
    verdict = judge(name)
    assert (verdict.refused, verdict.half) == ("", "")
    assert verdict.is_exact, f"differs by {verdict.difference}"
    assert verdict.num_rows > 100


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_say_why(name: str) -> None:
    """In both types, and the same."""
    verdict = judge(name)
    assert re.search(REFUSED[name], verdict.refused)
    assert verdict.half == verdict.refused


def test_a_wrong_window_would_show(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison is able to fail."""
    monkeypatch.setattr(probe_layers, "window_of", lambda *_, **__: None)
    assert judge("phimoe", in_half=False).difference > 0.01
