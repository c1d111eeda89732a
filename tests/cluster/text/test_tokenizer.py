"""The tokenizer as the coordinator uses it."""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from outrider.cluster.text import text_tokenizer
from outrider.cluster.text.detokenise import Detokeniser
from outrider.cluster.text.text_tokenizer import PretrainedCodec

TEMPLATE = (
    "{% for message in messages %}"
    "{% if message.role == 'nobody' %}{{ raise_exception('nobody may not speak') }}{% endif %}"
    "[{{ message.role }}]{{ message.content }}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)


@pytest.fixture(scope="module")
def wrapped() -> Any:
    """A small byte-level tokenizer of transformers."""
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(["the cat sat on the mat"] * 4, trainer)
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 0)]
    )
    wrap: Any = PreTrainedTokenizerFast
    wrapped = wrap(tokenizer_object=made, bos_token="<s>", eos_token="</s>")
    wrapped.chat_template = TEMPLATE
    return wrapped


@pytest.fixture(scope="module")
def codec(wrapped: Any, tmp_path_factory: pytest.TempPathFactory) -> PretrainedCodec:
    """That one, saved and loaded."""
    folder = tmp_path_factory.mktemp("tokenizer")
    wrapped.save_pretrained(folder)
    loaded = text_tokenizer.load(str(folder))
    assert isinstance(loaded, PretrainedCodec)
    return loaded


def test_text_survives_the_way_there_and_back(codec: PretrainedCodec) -> None:
    """Encoding adds the usual special tokens when asked to; decoding shows them."""
    text = "the cat 日本語 🙂"
    plain = codec.encode(text, add_special_tokens=False)
    assert codec.decode(plain) == text
    assert codec.encode(text, add_special_tokens=True) == [0, *plain]
    assert codec.special_ids == {0, 1}


def test_tokens_that_are_special_without_a_name_have_no_text(wrapped: Any, tmp_path: Path) -> None:
    """As those of a chat's turns; added tokens that are ordinary ones have some. transformers leaves out the same."""
    made = copy.deepcopy(wrapped)
    fast = made.backend_tokenizer
    fast.add_special_tokens(["<|turn|>"])
    fast.add_tokens(["<think>"])
    made.save_pretrained(tmp_path)
    codec = text_tokenizer.load(str(tmp_path))
    text = "<|turn|>a<think>b</s>"
    ids = codec.encode(text, add_special_tokens=True)
    kept = [token for token in ids if token not in codec.special_ids]
    assert codec.decode(kept) == "a<think>b" == made.decode(ids, skip_special_tokens=True)
    assert codec.decode(ids) == f"<s>{text}"


def test_the_chat_template_renders_and_refuses(codec: PretrainedCodec) -> None:
    """Up to where the answer starts; a template's own objection is an error in words."""
    assert codec.has_chat_template
    assert codec.render_chat([("user", "hi")]) == "[user]hi[assistant]"
    with pytest.raises(ValueError, match="nobody may not speak"):
        codec.render_chat([("nobody", "hi")])


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{{ tools | length }}", "object of type 'NoneType' has no len"),
        ("{{ messages[1].content }}", "has no element 1"),
        ("{{ 'x' * 10 ** 15 }}", "MemoryError"),
    ],
)
def test_a_template_that_fails_says_why(wrapped: Any, template: str, reason: str) -> None:
    """However: it is a program that came with the model."""
    made = copy.deepcopy(wrapped)
    made.chat_template = template
    with pytest.raises(ValueError, match=reason):
        PretrainedCodec(made).render_chat([("user", "hi")])


def test_a_text_without_tokens_for_it_is_named() -> None:
    """Where the vocabulary lacks a character, and has no token for what it lacks."""
    from transformers import PreTrainedTokenizerFast

    wrap: Any = PreTrainedTokenizerFast
    codec = PretrainedCodec(wrap(tokenizer_object=Tokenizer(models.Unigram([("a", 0.0)]))))
    assert codec.encode("aa", add_special_tokens=False) == [0, 0]
    with pytest.raises(ValueError, match="unknown token"):
        codec.encode("ab", add_special_tokens=False)


def test_a_tokenizer_in_python_streams_as_well() -> None:
    """One that leaves out what is no character yet; ids that it lacks, as models are often wider, have no text."""
    from transformers import ByT5Tokenizer

    made: Any = ByT5Tokenizer
    codec = PretrainedCodec(made())
    text = "naïve 日本 🙂!"
    ids = [one for token in codec.encode(text, add_special_tokens=False) for one in (token, 9999)]
    assert codec.decode(ids) == text
    detokeniser = Detokeniser(codec.decode, codec.special_ids)
    assert "".join(detokeniser.feed([token]) for token in ids) == text


def test_no_token_is_longer_than_told(codec: PretrainedCodec) -> None:
    """The bound by which hopeless text is refused holds."""
    assert codec.max_token_chars is not None
    assert codec.max_token_chars >= max(len(codec.decode([token])) for token in range(280))


def test_a_normaliser_leaves_room(wrapped: Any, codec: PretrainedCodec) -> None:
    """It may make one character of several, so more of them may stand for a token; but not any number."""
    fast = wrapped.backend_tokenizer
    fast.normalizer = normalizers.NFC()
    try:
        bound = PretrainedCodec(wrapped).max_token_chars
    finally:
        fast.normalizer = None
    assert codec.max_token_chars is not None
    assert bound == codec.max_token_chars * text_tokenizer.NORMALISED


def test_a_missing_tokenizer_is_named(tmp_path: Path) -> None:
    """With what can be done: a model's tokenizer lies beside it, and no option names another."""
    with pytest.raises(ValueError, match=r"cannot load a tokenizer from .*save the tokenizer"):
        text_tokenizer.load(str(tmp_path))


def test_code_that_comes_with_a_tokenizer_runs_where_it_may(
    wrapped: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for the actors: not unasked."""
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "m"))
    monkeypatch.setattr(sys, "path", [*sys.path])
    wrapped.save_pretrained(tmp_path)
    (tmp_path / "own.py").write_text(
        "from transformers import PreTrainedTokenizerFast\nclass OwnFast(PreTrainedTokenizerFast):\n"
        "    def apply_chat_template(self, *_, **__):\n        return 'by own code'\n"
    )
    file = tmp_path / "tokenizer_config.json"
    config = json.loads(file.read_text())
    config |= {"tokenizer_class": "OwnFast", "auto_map": {"AutoTokenizer": [None, "own.OwnFast"]}}
    file.write_text(json.dumps(config))
    allowed = text_tokenizer.load(str(tmp_path), allow_remote_code=True)
    assert allowed is not None
    assert allowed.render_chat([("user", "hi")]) == "by own code"
    with pytest.raises(ValueError, match="set allow_remote_code of the target"):
        text_tokenizer.load(str(tmp_path))
