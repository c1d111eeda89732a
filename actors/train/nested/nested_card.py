"""The card of a nested draft that was trained."""

from __future__ import annotations

from outrider.actors.train.nested.nested_options import NestedTrainingOptions


def nested_card(
    options: NestedTrainingOptions,
    *,
    num_parameters: int,
    steps: int,
    measured: str,
) -> str:
    """The text of `README.md`: what it is, how it was trained, what was measured, what it is not for."""
    exits = " ".join(f"--exits {layers}" for layers in options.exits)
    flags = f"--minutes {options.minutes:g} {exits} --seed {options.seed}"
    flags += " --separate" if options.separate else ""
    return f"""# Nested draft of `{options.target}`

One draft model of several sizes: after {", ".join(map(str, options.exits))} layers the same norm and head give the law of the next token. Method: S2D,
Kavehzadeh et al. 2024, arXiv 2407.01955. An ordinary `transformers` checkpoint (`LlamaForCausalLM`, tied embeddings, bfloat16); `exits` in `config.json`
is read by `method: sorted` and by nobody else.

    outrider serve --target {options.target} --draft FOLDER

**Shape.** {num_parameters / 1e6:.2f} M parameters: width {options.width}, {options.exits[-1]} layers, {options.num_heads} heads ({options.num_key_heads} of keys
and values), intermediate {options.inner}. Tokenizer: the target's.

**Training.** `outrider train sorted --data DIR --out DIR {flags}`: {steps} steps of {options.rows_per_step} rows of {options.row_length} tokens,
by turns of text and of what the target wrote at temperatures 0.3 to 1. Loss: the sum over exits of the divergence
from the target's law. The embedding began as the target's, projected.

**Measured** on held-out texts, in percent, teacher forced. `confidence c`: a position leaves at the first exit whose likeliest token has more than `c`.

{measured}

**Limits.** What the target's card says of texts and licences holds for this too: it was trained on the same data, and on the target's writing.
"""
