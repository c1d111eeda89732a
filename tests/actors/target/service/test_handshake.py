"""What a target tells of itself, and who may exchange candidates with it."""

from __future__ import annotations

import torch

from outrider.actors.exchange.vocabulary import Vocabulary
from outrider.actors.target.service.handshake import drafter_misfit, text_fingerprint
from outrider.v1 import sampling_pb2, target_pb2

VOCABULARY = Vocabulary(size=100, tokenizer="abc")
OFFERED = frozenset({"coupled"})


def misfit(**fields: object) -> str | None:
    """The verdict on a drafter with these fields."""
    defaults = {
        "name": "d",
        "vocab_size": 100,
        "tokenizer_fingerprint": "abc",
        "verifiers": [sampling_pb2.VERIFIER_COUPLED],
    }
    hello = target_pb2.Hello(**{**defaults, **fields})  # type: ignore[arg-type]
    return drafter_misfit(hello, vocabulary=VOCABULARY, target_name="t", offered=OFFERED)


def test_the_fingerprint_is_of_all_that_decides_a_text() -> None:
    """Weights, type, tokenizer, chat template and what ends a text each make another one; the same make the same."""
    one = text_fingerprint("m", torch.float32, "t")
    others = [
        text_fingerprint("n", torch.float32, "t"),
        text_fingerprint("m", torch.bfloat16, "t"),
        text_fingerprint("m", torch.float32, "u"),
        text_fingerprint("m", torch.float32, "t", "{{ messages }}"),
        text_fingerprint("m", torch.float32, "t", eos_token_ids=(2,)),
        text_fingerprint("m", torch.float32, "t", eos_token_ids=(2, 5)),
    ]
    assert text_fingerprint("m", torch.float32, "t") == one
    assert text_fingerprint("m", torch.float32, "t", eos_token_ids=(5, 2, 5)) == others[-1]
    assert len({one, *others}) == 7


def test_drafter_of_the_same_tokenizer_fits() -> None:
    """Same vocabulary, same tokenizer, a verifier in common."""
    assert misfit() is None


def test_padding_is_no_misfit() -> None:
    """Another width with the same tokenizer."""
    assert misfit(vocab_size=128) is None


def test_drafter_without_a_model_fits_everywhere() -> None:
    """It works on any token ids."""
    assert misfit(vocab_size=0, tokenizer_fingerprint="") is None


def test_misfits_are_named() -> None:
    """The message says what differs and what to do."""
    assert "99" in (misfit(vocab_size=99, tokenizer_fingerprint="") or "")
    assert "tokenizer" in (misfit(tokenizer_fingerprint="xyz") or "")
    assert "verifiers" in (misfit(verifiers=[sampling_pb2.VERIFIER_BLOCK]) or "")
    assert "verifiers" in (misfit(verifiers=[]) or "")
