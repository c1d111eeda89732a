"""The shipped demonstration models."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from outrider.actors import demo
from outrider.actors.draft.choice.drafter_registry import loading_method
from outrider.actors.draft.heads.speculator_file import load_speculator
from outrider.actors.engine.checkpoint.tokenizers import load_tokenizer, tokenizer_fingerprint
from outrider.actors.engine.engine_settings import EngineSettings
from outrider.actors.engine.load.load_engine import load_engine
from outrider.actors.engine.nested.load_nested import load_nested

CHAT = [{"role": "user", "content": "Translate English to German: Good morning."}]


def size_of(*names: str) -> int:
    """Bytes of the folders of models."""
    files = [file for name in names for file in demo.path(name).rglob("*") if file.is_file()]
    return sum(file.stat().st_size for file in files)


def test_the_package_stays_small() -> None:
    """A target and its drafts 13 MB at most; all that is trained for that target beside them 6 MB."""
    assert 0 < size_of("target", *demo.DRAFTS) <= 13_000_000
    assert 0 < size_of(*demo.NESTED, *demo.HEADS) <= 6_000_000


def test_unknown_name_lists_the_choices() -> None:
    """A wrong name is answered with the right ones."""
    with pytest.raises(ValueError, match="'big': choose among target, draft, draft-small"):
        demo.path("big")


@pytest.mark.parametrize("name", demo.NAMES)
def test_each_folder_loads_by_itself(name: str) -> None:
    """Model and tokenizer come from the one folder and fit each other."""
    model = AutoModelForCausalLM.from_pretrained(demo.path(name))
    tokenizer = AutoTokenizer.from_pretrained(demo.path(name))
    assert len(tokenizer) == model.config.vocab_size == 4096
    assert model.dtype == torch.bfloat16
    assert model.config.tie_word_embeddings


def test_all_share_one_tokenizer() -> None:
    """Drafts and target must mean the same by a token."""
    files = {(demo.path(name) / "tokenizer.json").read_bytes() for name in demo.NAMES}
    assert len(files) == 1


def test_the_speculator_is_small_and_of_the_shipped_target() -> None:
    """Its card and its weights are there, it borrows the target's tables, and says whose it is."""
    folder = demo.path("mlp_speculator")
    assert sum(file.stat().st_size for file in folder.iterdir()) <= 1_500_000
    net = load_speculator(folder)
    engine = load_engine(EngineSettings(model="demo:target", num_slots=1, max_context=16))
    assert net.config.target_fingerprint == engine.spec.fingerprint
    assert net.config.eos_token_ids == engine.spec.eos_token_ids
    tokenizer = load_tokenizer("demo:target")
    assert tokenizer is not None
    assert net.config.tokenizer_fingerprint == tokenizer_fingerprint(tokenizer)
    assert net.config.tables_digest
    assert (folder / "README.md").is_file()


def test_the_nested_draft_is_small_and_says_where_its_exits_are() -> None:
    """It is told from a plain draft model by its configuration, which has a card beside it."""
    folder = demo.path("sorted")
    assert sum(file.stat().st_size for file in folder.iterdir()) <= 1_000_000
    assert loading_method("demo:sorted") == "sorted"
    nested = load_nested(EngineSettings(model="demo:sorted", num_slots=1, max_context=16))
    assert nested.exits == (1, 2, 3)
    assert "2407.01955" in (folder / "README.md").read_text()


@torch.no_grad()
def test_drafts_agree_with_the_target() -> None:
    """They are distilled, not random: most greedy tokens of an answer are found among four."""
    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(demo.path("target"))
    text = "Natalia has 3 boxes with 12 apples in each box. How many apples does she have?"
    ids = tokenizer.apply_chat_template(
        [{"role": "user", "content": text}], add_generation_prompt=True, return_dict=False
    )
    models = {
        name: AutoModelForCausalLM.from_pretrained(demo.path(name), dtype=torch.float32)
        for name in demo.NAMES
    }
    whole = torch.tensor([ids])
    for _ in range(40):
        best = models["target"](input_ids=whole).logits[:, -1:].argmax(-1)
        whole = torch.cat([whole, best], dim=1)
    answer_N = whole[0, len(ids) :]
    for name in ("draft", "draft-small", "sorted"):
        logits_NV = models[name](input_ids=whole).logits[0, len(ids) - 1 : -1]
        hits_NK = logits_NV.topk(4, dim=-1).indices == answer_N[:, None]
        assert hits_NK.any(-1).float().mean() > 0.5, name
