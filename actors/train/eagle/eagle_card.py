"""The card of an EAGLE-3 net that was trained."""

from __future__ import annotations

from outrider.actors.draft.eagle.eagle_config import EagleConfig
from outrider.actors.train.eagle.eagle_options import EagleTrainingOptions


def eagle_card(config: EagleConfig, options: EagleTrainingOptions, measured: str) -> str:
    """The text of `README.md`: what it is, how it was trained, what was measured, what it is not for."""
    layers = ", ".join(map(str, config.taps))
    proposes = (
        f"{config.num_drafted} tokens may be proposed"
        if config.num_drafted
        else "all tokens may be proposed"
    )
    head = (
        "a head of its own; the embedding is the target's, which is not stored"
        if config.owns_head
        else "embedding and head are the target's, which are not stored"
    )
    reuse = ""
    if config.reuse_rank:
        reuse = f" A map of rank {config.reuse_rank} puts another token into a kept state (`hidden_reuse`), trained behind the rest."
    return f"""# EAGLE-3 drafter of `{config.target}`

Drafts for one target: a decoder layer over the target's hidden states that goes on on its own (Li et al. 2025, arXiv 2503.01840).
It proposes; the target decides. Its weights fit the target with the fingerprint `{config.target_fingerprint[:16]}` and no other.

    outrider serve --target {config.target} --draft FOLDER

**Shape.** One layer of width {config.width} with {config.num_heads} heads ({config.num_key_heads} of keys) and a gated product of {config.inner}, over the states of layers {layers} (embedding 0),
window {config.window}; {proposes}; {head}.

**Training.** `outrider train eagle3 --steps {options.steps} --reuse-steps {options.reuse_steps} --minutes {options.minutes:g} --threads {options.threads} --seed {options.seed}`: steps of {options.rows_per_step} rows of {options.text_rows} + {options.own_rows}, {config.num_steps} tokens ahead each, by turns of text and of
what the target wrote at temperatures 0.3 to 1.{reuse}

**Measured** on held-out texts, in percent by token behind the newest one, each given that the tokens before were right; `tokens a pass` counts the
target's own. Tokens beyond the {config.num_steps}th are further than it was trained.

{measured}

**Limits.** What the target's card says of texts and licences holds for this too: it was trained on the same data, and on the target's writing.
"""
