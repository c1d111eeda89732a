"""Text of tokenizers that spell what they lack in bytes, as those of Llama 2, Mistral and Gemma do."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers

from outrider.cluster.text.detokenise import Detokeniser
from outrider.cluster.text.text_tokenizer import PretrainedCodec

LETTERS = "▁abc日"
SPECIAL = ("<unk>", "<s>", "</s>")
PARTS = {
    "llama": [decoders.Strip(" ", 1, 0)],
    "gemma": [],
}
"""What the decoder does at the end."""


@lru_cache
def codec(family: str) -> PretrainedCodec:
    """A BPE with byte fallback: its letters, and all bytes."""
    from transformers import PreTrainedTokenizerFast

    names = [*SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256)), *LETTERS]
    vocab = {name: place for place, name in enumerate(names)}
    made = Tokenizer(
        models.BPE(vocab=vocab, merges=[], unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    made.normalizer = normalizers.Replace(" ", "▁")
    if family == "llama":
        made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), made.normalizer])
    shared = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    made.decoder = decoders.Sequence([*shared, *PARTS[family]])
    wrap: Any = PreTrainedTokenizerFast
    return PretrainedCodec(
        wrap(tokenizer_object=made, unk_token="<unk>", bos_token="<s>", eos_token="</s>")
    )


def ids_of(data: bytes) -> list[int]:
    """The tokens of some bytes."""
    return [len(SPECIAL) + byte for byte in data]


def streamed(made: PretrainedCodec, ids: Sequence[int], size: int = 1) -> list[str]:
    """The pieces of text that come out, so many tokens at a time; the last one at the end."""
    detokeniser = Detokeniser(made.decode, made.special_ids)
    pieces = [detokeniser.feed(ids[at : at + size]) for at in range(0, len(ids), size)]
    return [*pieces, detokeniser.flush()]


families = pytest.mark.parametrize("family", PARTS)


@families
@settings(deadline=None)
@given(text=st.text(alphabet="ab 日é🙂👧\u200d", max_size=20), size=st.integers(1, 5))
def test_no_character_is_split(family: str, text: str, size: int) -> None:
    """Characters that are spelled in bytes come out whole, when their last byte is there."""
    made = codec(family)
    pieces = streamed(made, made.encode(text, add_special_tokens=False), size)
    assert "".join(pieces) == text
    assert all("\ufffd" not in piece for piece in pieces)
    assert pieces[-1] == ""


@families
@settings(deadline=None)
@given(ids=st.lists(st.integers(0, 263), max_size=40), size=st.integers(1, 9))
def test_pieces_add_up_to_the_whole_text(family: str, ids: list[int], size: int) -> None:
    """Whatever the tokens and the cuts, valid or not."""
    made = codec(family)
    texted = [token for token in ids if token not in made.special_ids]
    assert "".join(streamed(made, ids, size)) == made.decode(texted)
    singly = streamed(made, ids)[:-1]
    assert "".join(streamed(made, ids, size)[:-1]) == "".join(singly)


@families
def test_bytes_that_are_none_take_no_character_with_them(family: str) -> None:
    """Those before and behind stay; of tokens that the tokenizer lacks there is nothing."""
    ids = ids_of("é🙂".encode() + b"\xff" + "日".encode())
    assert codec(family).decode(ids) == "é🙂\ufffd日"
    assert codec(family).decode([*ids[:3], 9999, *ids[3:]]) == "é🙂\ufffd日"


def test_names_of_bytes_are_text_elsewhere() -> None:
    """Where the decoder takes them for text, so do we."""
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.BPE(vocab={"<0x41>": 0, "<0x42>": 1}, merges=[]))
    made.decoder = decoders.ByteLevel()
    wrap: Any = PreTrainedTokenizerFast
    assert PretrainedCodec(wrap(tokenizer_object=made)).decode([0, 1]) == "<0x41><0x42>"
