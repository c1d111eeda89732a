"""The card of a block drafter that was trained."""

from __future__ import annotations

from outrider.actors.draft.block.block_config import BlockConfig
from outrider.actors.train.block.dspark_options import DsparkTrainingOptions


def block_card(config: BlockConfig, options: DsparkTrainingOptions, measured: str) -> str:
    """The text of `README.md`: what it is, how it was trained, what was measured, what it is not for."""
    method = "DSpark (DeepSeek-AI and Peking University 2026)" if config.rank else "DFlash"
    heads = f"Markov head of rank {config.rank} and confidence head" if config.rank else "no head"
    told = f"; it may be told {config.most_revealed} tokens" if config.most_revealed else ""
    layers = ", ".join(map(str, config.taps))
    return f"""# Block drafter of `{config.target}`

Drafts for one target: {config.block} tokens in one pass from the target's hidden states. Method: {method} on DFlash's blocks (arXiv 2602.06036).
It proposes; the target decides. Its weights fit the target with the fingerprint `{config.target_fingerprint[:16]}` and no other.

    outrider serve --target {config.target} --draft FOLDER

**Shape.** {config.num_layers} blocks of width {config.width} with {config.num_heads} heads over the states of layers {layers} (embedding 0), window
{config.window}; {heads}{told}. Embedding and head are the target's, which are not stored.

**Training.** `outrider train dspark --data DIR --out DIR --rank {config.rank} --steps {options.steps} --text-rows {options.text_rows} --own-rows {options.own_rows} --minutes {options.minutes:g} --seed {options.seed}`:
at most {options.steps} steps of {options.rows_per_step} rows with {options.blocks_per_row} blocks each, by turns of text and of what the target wrote at temperatures 0.3 to 1.

**Measured** on held-out texts, in percent by token behind the newest one, each given that the tokens before were right; `tokens a pass` counts the
target's own. `late`: so many tokens were written since the newest states.

{measured}

**Limits.** What the target's card says of texts and licences holds for this too: it was trained on the same data, and on the target's writing.
"""
