"""The card of a speculator that was trained."""

from __future__ import annotations

from outrider.actors.draft.heads.speculator_config import SpeculatorConfig
from outrider.actors.train.heads.speculator_options import SpeculatorOptions

LABELS = {"tokens": "the tokens of the texts", "law": "the target's distribution at each position"}
TABLES = {
    "target": "the target's embedding and head, which are not stored",
    "own": "own embedding and head",
}


def card(config: SpeculatorConfig, options: SpeculatorOptions, measured: str) -> str:
    """The text of `README.md`: what it is, how it was trained, what was measured, what it is not for."""
    return f"""# Speculator of `{config.target}`

Drafts for one target: heads that read its final hidden state and the tokens drafted so far (Wertheimer et al. 2024, arXiv 2404.19124).
It proposes; the target decides. Its weights fit the target with the fingerprint `{config.target_fingerprint[:16]}` and no other.

    outrider serve --target {config.target} --draft FOLDER

**Shape.** {config.num_stages} heads, {"tied" if config.tied else "not tied"}, width {config.inner}; inputs: {options.inputs}; {TABLES[config.tables]}.

**Training.** `outrider train mlp_speculator --text-steps {options.text_steps} --own-steps {options.own_steps} --text-rows {options.text_rows} --own-rows {options.own_rows} --minutes {options.minutes:g} --seed {options.seed}`:
at most {options.text_steps} steps of {options.rows_per_step * options.row_length} tokens on text, then at most {options.own_steps} on what the target wrote at temperatures 0.3 to 1, at {options.own_rate:g} of the learning rate. Learnt: {LABELS[options.labels]}.

**Measured** on held-out texts, in percent by depth, each given that the tokens before were right; `tokens a pass` counts the target's own.

{measured}

**Limits.** What the target's card says of texts and licences holds for this too: it was trained on the same data, and on the target's writing.
"""
