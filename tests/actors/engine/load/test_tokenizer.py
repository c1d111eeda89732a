"""Digests of tokenizers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer
from transformers import PreTrainedTokenizerFast

from outrider.actors.engine.checkpoint.tokenizers import load_tokenizer, tokenizer_fingerprint
from outrider.actors.engine.tables.tabular_engine import random_table


def trained(text: str = "the cat sat on the mat", **options: object) -> PreTrainedTokenizerFast:
    """A small byte-level tokenizer."""
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = BpeTrainer(vocab_size=40, special_tokens=["<end>"], show_progress=False)
    tokenizer.train_from_iterator([text] * 4, trainer)
    # transformers leaves this one untyped.
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer, **{"eos_token": "<end>", **options}
    )


def test_equal_tokenizers_in_different_folders(tmp_path: Path) -> None:
    """Where a tokenizer lies, and its chat template, do not count."""
    tokenizer = trained()
    tokenizer.save_pretrained(tmp_path / "a")
    other = trained()
    other.chat_template = "{{ messages }}"
    other.save_pretrained(tmp_path / "b")
    loaded = [tokenizer_fingerprint(trained())]
    for name in "ab":
        (tmp_path / name / "config.json").write_text('{"model_type": "llama"}')
        found = load_tokenizer(str(tmp_path / name))
        assert found is not None
        loaded.append(tokenizer_fingerprint(found))
    assert len(set(loaded)) == 1


def test_different_tokenizers_differ() -> None:
    """Another vocabulary, another special token or another splitting of text gives another digest."""
    plain = trained()
    split = trained()
    split.backend_tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    others = [trained("a dog sat on the log"), trained(pad_token="<end>", eos_token="t"), split]
    digests = [tokenizer_fingerprint(each) for each in [plain, *others]]
    assert len(set(digests)) == 4


def test_roles_of_special_tokens_do_not_count() -> None:
    """A model that was fine-tuned to end its turns, and fills up with another token, reads a text as its base does."""
    base, tuned = trained(), trained()
    for tokenizer in (base, tuned):
        tokenizer.add_tokens(["<turn>", "<pad>"], special_tokens=True)
    tuned.eos_token, tuned.pad_token = "<turn>", "<pad>"
    assert tuned.all_special_ids != base.all_special_ids
    assert tokenizer_fingerprint(tuned) == tokenizer_fingerprint(base)


@pytest.mark.parametrize(
    "changes", [{"model": {"type": "Newer"}}, {"pre_tokenizer": {"type": "N"}}]
)
def test_what_the_library_does_not_know_is_refused(
    changes: dict[str, object], tmp_path: Path
) -> None:
    """A file of a later version of it, for instance; the model is named."""
    trained().save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    file = tmp_path / "tokenizer.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    with pytest.raises(ValueError, match=f"{tmp_path}.*its tokenizer cannot be loaded: "):
        load_tokenizer(str(tmp_path))


def test_table_has_no_tokenizer(tmp_path: Path) -> None:
    """A table of distributions speaks in ids."""
    random_table(4, 0, seed=0).save(tmp_path / "t.npz")
    assert load_tokenizer(f"tabular:{tmp_path / 't.npz'}") is None


def test_missing_tokenizer(tmp_path: Path) -> None:
    """A folder without a tokenizer, or no folder, is refused by name."""
    with pytest.raises(ValueError, match="there is no such folder"):
        load_tokenizer(str(tmp_path / "nowhere"))
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(ValueError, match="its tokenizer cannot be loaded"):
        load_tokenizer(str(tmp_path))
