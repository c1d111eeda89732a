"""The card of a CTC drafter that was trained, or of the one that it is compared with."""

from __future__ import annotations

from outrider.actors.draft.block.block_config import BlockConfig
from outrider.actors.train.ctc.ctc_options import CtcTrainingOptions
from outrider.actors.train.heads.head_evaluation import TREE


def ctc_card(config: BlockConfig, options: CtcTrainingOptions, measured: str) -> str:
    """The text of `README.md`: what it is, how it was trained, what was measured, what it is not for."""
    if options.loss == "cross_entropy":
        what = f"{config.block} tokens in one pass, a slot for each, trained by cross-entropy: DFlash (arXiv 2602.06036)"
        given = ""
    else:
        what = (
            f"{options.labels} tokens in {config.block} frames of one pass, which hold tokens, repeats and blanks and are collapsed: "
            "CTC (Wen et al. 2024, arXiv 2412.00061)"
        )
        given = f" --labels {options.labels}"
    layers = ", ".join(map(str, config.taps))
    return f"""# CTC drafter of `{config.target}`

Drafts for one target, from its hidden states: {what}. It proposes; the target decides. Its weights fit the target with the fingerprint
`{config.target_fingerprint[:16]}` and no other.

    outrider serve --target {config.target} --draft FOLDER

**Shape.** Blocks of width {config.width}, {config.num_layers} of them, with {config.num_heads} heads and gated products of width {config.inner} over the states of layers
{layers} (embedding 0), window {config.window}. Embedding and head are the target's, which are not stored.

**Training.** `outrider train ctc --loss {options.loss} --block {config.block}{given} --num-layers {config.num_layers} --inner {config.inner} --steps {options.steps}
--minutes {options.minutes:g} --seed {options.seed}`: at most so many steps of {options.rows_per_step} rows with {options.blocks_per_row} blocks each, by turns of text and of what the target wrote at temperatures
0.3 to 1.

**Measured** on held-out texts, in percent by token behind the newest one, each given that the tokens before were right; `tokens a pass` counts the
target's own, of a chain of the likeliest tokens and of a tree of the {TREE} likeliest nodes.

{measured}

**Limits.** What the target's card says of texts and licences holds for this too: it was trained on the same data, and on the target's writing.
"""
