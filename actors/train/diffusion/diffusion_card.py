"""The card of a diffusion drafter that was trained."""

from __future__ import annotations

from outrider.actors.draft.diffusion.diffusion_config import DiffusionConfig
from outrider.actors.train.diffusion.diffusion_options import DiffusionTrainingOptions


def diffusion_card(
    config: DiffusionConfig, options: DiffusionTrainingOptions, measured: str
) -> str:
    """The text of `README.md`: what it is, how it was trained, what was measured, what it is not for."""
    return f"""# Diffusion drafter of `{config.target}`

Drafts {config.block} tokens at once by masked diffusion, from the text alone: a block-causal form of SpecDiff (Christopher et al. 2024, arXiv 2408.05636).
It proposes; the target decides. It borrows the embedding and head of the target with the fingerprint `{config.target_fingerprint[:16]}`.

    outrider serve --target {config.target} --draft FOLDER

**Shape.** {config.num_layers} layers of width {config.width} with {config.num_heads} heads ({config.num_key_heads} of keys), gated products of {config.inner}, window {config.window}.

**Training.** `outrider train diffusion --data DIR --out DIR --seed {options.seed} --minutes {options.minutes:g}`: at most {options.steps} steps of {options.rows_per_step} rows with
{options.blocks_per_row} blocks each, by turns of text ({options.text_rows} rows) and of what the target wrote at temperatures 0.3 to 1 ({options.own_rows} rows).

**Measured** on held-out texts, in percent by token behind the newest one, each given that the tokens before were right; `tokens a pass` counts the
target's own. A further step is `told` that many tokens, here those of the text.

{measured}

**Limits.** What the target's card says of texts and licences holds for this too: it was trained on the same data, and on the target's writing.
"""
