"""Incremental detokenisation."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers.decoders import Decoder

from outrider.cluster.text.byte_tokens import ByteTokens
from outrider.cluster.text.detokenise import Detokeniser

SPECIAL = "<|end|>"
CORPUS = [
    "the cat sat on the mat",
    "日本語のテキスト",
    "naïve café – “quoted”",
    "🙂🙃 emoji 👩‍👩‍👧 family",
] * 4


@lru_cache
def tokenizer() -> Tokenizer:
    """A byte-level BPE of all bytes, some merges and a special token."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=330,
        special_tokens=[SPECIAL],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(CORPUS, trainer)
    return made


def token_id(token: str) -> int:
    """The id of a token that is there."""
    found = tokenizer().token_to_id(token)
    assert found is not None
    return int(found)


def decode(ids: Sequence[int]) -> str:
    """The decoder that the detokeniser is given."""
    return str(tokenizer().decode(list(ids), skip_special_tokens=False))


def detokeniser() -> Detokeniser:
    """One for a new sequence."""
    return Detokeniser(decode, frozenset({token_id(SPECIAL)}))


any_ids = st.lists(st.integers(0, 329), max_size=80)
real_ids = st.text(alphabet="aé日🙂👧 \u200d", max_size=30).map(
    lambda text: tokenizer().encode(text).ids
)
continuation_byte: int = token_id(pre_tokenizers.ByteLevel().pre_tokenize_str("é")[0][0][1])


@settings(deadline=None)
@given(ids=any_ids | real_ids, sizes=st.lists(st.integers(1, 9), min_size=1, max_size=20))
@example(ids=[continuation_byte] * 200, sizes=[1])
@example(ids=[continuation_byte] * 100 + [70, 71], sizes=[3])
def test_pieces_add_up_to_the_whole_text(ids: list[int], sizes: list[int]) -> None:
    """Whatever the tokens and the cuts, the pieces are the tokenizer's text of all of them."""
    made, text, start, turn = detokeniser(), "", 0, 0
    while start < len(ids):
        size = sizes[turn % len(sizes)]
        text += made.feed(ids[start : start + size])
        start, turn = start + size, turn + 1
    assert text + made.flush() == tokenizer().decode(ids, skip_special_tokens=True)


def sentencepiece() -> Any:  # the stubs let its decoder be set to more than it gives
    """Words with the space before them, which the decoder takes off the first one; other characters in bytes. As Llama 2 has it."""
    pieces = [
        "<unk>",
        "<s>",
        "▁",
        "a",
        "b",
        "▁a",
        "▁b",
        *(f"<0x{byte:02X}>" for byte in range(256)),
    ]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    made = Tokenizer(models.BPE(vocabulary, [("▁", "a"), ("▁", "b")], byte_fallback=True))
    made.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    made.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return made


@settings(deadline=None)
@given(
    prompt=st.text(alphabet="ab 日", min_size=1, max_size=20),
    more=st.text(alphabet="ab 日", max_size=20),
    size=st.integers(1, 5),
)
@example(prompt="a b", more=" a", size=1)
def test_a_text_goes_on_from_the_one_before(prompt: str, more: str, size: int) -> None:
    """Its first word keeps the space that a decoder takes off the first word of a text."""
    made = sentencepiece()
    ids, whole = made.encode(prompt).ids, made.encode(prompt + more).ids
    if whole[: len(ids)] != ids:
        return
    detokeniser = Detokeniser(ByteTokens(made).decode, frozenset({1}), before=[1, *ids])
    rest = whole[len(ids) :]
    text = "".join(detokeniser.feed(rest[at : at + size]) for at in range(0, len(rest), size))
    assert prompt + text + detokeniser.flush() == prompt + more


@settings(deadline=None)
@given(ids=any_ids, before=any_ids)
def test_what_a_text_goes_on_from_is_no_part_of_it(ids: list[int], before: list[int]) -> None:
    """Where no word loses a space, the text is that of its own tokens, also behind a part of a character."""
    made = Detokeniser(decode, frozenset({token_id(SPECIAL)}), before=before)
    text = made.feed(ids) + made.flush()
    assert text == tokenizer().decode(ids, skip_special_tokens=True)


@settings(deadline=None)
@given(ids=any_ids | real_ids, cut=st.integers(0, 80))
def test_what_is_out_depends_on_the_tokens_only(ids: list[int], cut: int) -> None:
    """Token by token, in two pieces or at once: the same text is out, so a resumed stream fits."""
    singly, halves, whole = detokeniser(), detokeniser(), detokeniser()
    one_by_one = "".join(singly.feed([token]) for token in ids)
    assert one_by_one == halves.feed(ids[:cut]) + halves.feed(ids[cut:]) == whole.feed(ids)


@settings(deadline=None)
@given(text=st.text(alphabet="aé日🙂👧 \u200d", max_size=30))
def test_no_character_is_split(text: str) -> None:
    """Of well-formed text no replacement character is ever out, and nothing is left to flush."""
    made = detokeniser()
    out = [made.feed([token]) for token in tokenizer().encode(text).ids]
    assert all("\ufffd" not in piece for piece in out)
    assert "".join(out) == text
    assert made.flush() == ""


def test_the_cost_of_a_token_does_not_grow() -> None:
    """However long the text, and even if it never forms a character, only a small window is decoded."""
    longest = 0

    def counting(ids: Sequence[int]) -> str:
        nonlocal longest
        longest = max(longest, len(ids))
        return decode(ids)

    texts = ([9999] * 500, [continuation_byte] * 500)
    for ids in (tokenizer().encode("the cat sat on the mat " * 50).ids, *texts):
        made = Detokeniser(counting)
        for token in ids:
            made.feed([token])
    assert longest <= 40


WORDS = {"a": 0, "b": 1, "##c": 2, ".": 3, "▁": 4, "▁a": 5, "▁b": 6}


@pytest.mark.parametrize(
    "decoder", [decoders.WordPiece(), decoders.Metaspace(), decoders.BPEDecoder("##c"), None]
)
@settings(deadline=None)
@given(ids=st.lists(st.integers(0, len(WORDS) + 2), max_size=30), size=st.integers(1, 4))
@example(ids=[5, 8, 6], size=1)
@example(ids=[0, *[8] * 50, 2], size=1)
@example(ids=[*[8] * 50, 4, 4, 6], size=1)
def test_ids_without_a_token_change_nothing(
    decoder: Decoder | None, ids: list[int], size: int
) -> None:
    """A model is often wider than its tokenizer: words behind such an id are spaced and joined as without it."""
    made = Tokenizer(models.WordLevel(WORDS, unk_token="a"))
    if decoder is not None:
        made.decoder = decoder
    detokeniser = Detokeniser(lambda some: str(made.decode(list(some))))
    pieces = [detokeniser.feed(ids[at : at + size]) for at in range(0, len(ids), size)]
    assert "".join([*pieces, detokeniser.flush()]) == made.decode(ids)


def test_bytes_that_never_become_a_character_are_replaced_at_the_end() -> None:
    """A started character is held back, and flushed as a replacement character."""
    made = detokeniser()
    start = tokenizer().encode("é").ids
    first = start[0]
    if len(start) == 1:
        first = continuation_byte
    assert made.feed([first]) == ""
    assert made.flush() == "\ufffd"
