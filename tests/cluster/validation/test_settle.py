"""Options of a request: defaults, and what needs several of them together."""

from __future__ import annotations

from tests.cluster.validation.cases import settle

from outrider.actors.speculation.options import Speculation


def test_an_empty_request_takes_the_defaults() -> None:
    """Absent fields change nothing; the seed is the fresh one; all drafters that fit are used."""
    settled = settle()
    assert settled.sampling.seed == 77
    assert settled.sampling.temperature == 1.0
    assert settled.sampling.top_p == 1.0
    assert settled.sampling.repetition_penalty == 1.0
    assert settled.sampling.max_tokens == 16
    assert settled.sampling.logprobs is None
    assert settled.stop_tokens == {0}
    assert settled.num_sequences == 1
    assert settled.drafters == ("a", "b")
    assert settled.speculation == Speculation()


def test_a_written_zero_is_a_zero() -> None:
    """Temperature 0, seed 0 and 0 log-probabilities are not defaults."""
    settled = settle(sampling={"temperature": 0.0, "seed": 0, "logprobs": 0})
    assert settled.sampling.temperature == 0.0
    assert settled.sampling.seed == 0
    assert settled.sampling.logprobs == 0
