"""The tokenizer loses nothing, and its chat form is the trained one."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from outrider.actors.train.loop.training_checkpoint import save_tokenizer
from outrider.actors.train.text.corpus import ChatTurn, Document
from outrider.actors.train.text.train_tokenizer import (
    SPECIAL,
    encode_documents,
    load_tokenizer,
    train_tokenizer,
)
from outrider.actors.train.training_errors import DataError

TEXTS = ["the cat sat on the mat, 1234 times\n" * 4, "def f(x):\n    return x + 1\n" * 4]
TOKENIZER = train_tokenizer(TEXTS, 300)
ODD = [
    "",
    " ",
    "  two  spaces ",
    "\r\n\t\0\x7f",
    "naïve café — “quoted”",
    "日本語と中文 mixed",
    "👩‍👩‍👧‍👦 \U0001f600 \ufeff\u202e",
    "a\u0301 versus á",
    "12,345.678",
    "<|begi",
]


@pytest.mark.parametrize("text", ODD)
def test_odd_text_comes_back(text: str) -> None:
    """Any UTF-8 text survives encoding and decoding."""
    assert text == TOKENIZER.decode(TOKENIZER(text).input_ids, skip_special_tokens=True)


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=60))
@settings(max_examples=60, deadline=None)
def test_any_text_comes_back(text: str) -> None:
    """Not only the texts thought of."""
    ids = TOKENIZER.backend_tokenizer.encode(text, add_special_tokens=False).ids
    assert text == TOKENIZER.decode(ids, skip_special_tokens=False)


def test_digits_stand_alone() -> None:
    """A number is spelled digit by digit."""
    ids = TOKENIZER("2024", add_special_tokens=False).input_ids
    assert TOKENIZER.convert_ids_to_tokens(ids) == ["2", "0", "2", "4"]


def test_plain_text_is_opened() -> None:
    """A prompt that is no conversation begins as the training documents do."""
    assert TOKENIZER.bos_token_id == TOKENIZER("the cat").input_ids[0]


def test_chat_template_is_what_was_trained_on() -> None:
    """Templated conversations and training documents have the same ids."""
    turns = [("system", "Be brief."), ("user", "the cat?"), ("assistant", "sat")]
    document = Document("k", messages=tuple(ChatTurn(*turn) for turn in turns))
    messages = [{"role": role, "content": content} for role, content in turns]
    ids = TOKENIZER.apply_chat_template(messages, return_dict=False)
    assert encode_documents(TOKENIZER, [document])[0].tolist() == ids


def test_chat_template_opens_the_answer() -> None:
    """Asked for an answer, it ends with an open assistant turn."""
    text = TOKENIZER.apply_chat_template(
        [{"role": "user", "content": "hi"}], tokenize=False, add_generation_prompt=True
    )
    assert text == "<|begin|><|user|>hi<|end|><|assistant|>"


def test_chat_template_refuses_other_roles() -> None:
    """An unknown role is named."""
    with pytest.raises(Exception, match="role must be system, user or assistant, not tool"):
        TOKENIZER.apply_chat_template([{"role": "tool", "content": "x"}], tokenize=False)
    with pytest.raises(DataError, match="role is 'tool'; the model knows"):
        encode_documents(TOKENIZER, [Document("k", messages=(ChatTurn("tool", "x"),))])


def test_markers_inside_training_text_stay_text() -> None:
    """A document cannot forge the end of its turn."""
    ids = encode_documents(TOKENIZER, [Document("k", text="a <|end|> b")])[0].tolist()
    assert ids.count(TOKENIZER.eos_token_id) == 1
    assert TOKENIZER.decode(ids[1:-1]) == "a <|end|> b"
    assert not TOKENIZER.backend_tokenizer.encode_special_tokens


def test_long_documents_come_in_pieces() -> None:
    """Pieces joined are the document."""
    document = Document("k", text="the cat sat " * 50)
    whole = encode_documents(TOKENIZER, [document], piece_length=10_000)[0].tolist()
    pieces = encode_documents(TOKENIZER, [document], piece_length=16)
    assert max(len(piece) for piece in pieces) == 16
    assert whole == [int(token) for piece in pieces for token in piece]


def test_saved_tokenizer_is_the_same(tmp_path: Path) -> None:
    """The compact file loads to the same ids, specials first."""
    save_tokenizer(tmp_path, TOKENIZER)
    loaded = load_tokenizer(tmp_path)
    assert isinstance(loaded, PreTrainedTokenizerFast)
    assert list(range(len(SPECIAL))) == loaded.convert_tokens_to_ids(list(SPECIAL))
    assert all(TOKENIZER(text).input_ids == loaded(text).input_ids for text in ODD + TEXTS)
