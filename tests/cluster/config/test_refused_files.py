"""Configuration files that `outrider config validate` refuses: what is known of them before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from outrider.cluster.config.config_errors import ConfigError
from outrider.cluster.config.schema import load_config

TARGET = "targets: [{model: 'demo:target'}]\n"
BOMB = "\n".join(
    ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
)

FILES = {
    "a law that does not exist": ("targets: [{model: 'law:agree99'}]", "no law 'agree99'"),
    "a model that is not shipped": ("targets: [{model: 'demo:nope'}]", "choose among target"),
    "two servers at one port": (
        f"{TARGET}service: {{listen: '127.0.0.1:5000', metrics: '0.0.0.0:5000'}}",
        "both at port 5000",
    ),
    "a truth for a number": (
        f"{TARGET}drafters: [{{method: prompt_lookup, options: {{longest_match: true}}}}]",
        "longest_match of method prompt_lookup is true; it must be a whole number",
    ),
    "a text for a number": (
        f"{TARGET}drafters: [{{method: suffix, options: {{memory_tokens: 'a'}}}}]",
        'is "a"; it must be a whole number',
    ),
    "a number for a truth": (
        f"{TARGET}drafters: [{{method: eagle3, model: x, options: {{reuse: 1}}}}]",
        "is 1; it must be true or false",
    ),
    "digits without end": (f"targets: [{{model: x, num_slots: {'9' * 5000}}}]", "digits"),
    "a file that holds itself": ("targets: &a [*a]", "holds itself"),
    "a file that stands for a billion values": (BOMB, "more than 100,000 values"),
    "a date for a key": (f"{TARGET}drafters: [{{resources: {{2026-01-01: 1}}}}]", "keys must be"),
    "a key twice": ("targets: [{model: x, model: y}]", "'model' occurs twice"),
}


@pytest.mark.parametrize("case", list(FILES))
def test_it_is_refused_with_its_reason(case: str, tmp_path: Path) -> None:
    """One line, at once, however large it would be."""
    text, says = FILES[case]
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as refused:
        load_config(path)
    assert says in str(refused.value)


def test_json_keeps_no_key_in_silence(tmp_path: Path) -> None:
    """Of two values of a key, it would take the last."""
    path = tmp_path / "config.json"
    path.write_text('{"targets": [{"model": "a"}], "targets": [{"model": "b"}]}')
    with pytest.raises(ConfigError, match="'targets' occurs twice"):
        load_config(path)


def test_ports_may_be_free_ones_or_of_other_addresses(tmp_path: Path) -> None:
    """Then nothing clashes."""
    for listen, metrics in (("127.0.0.1:0", "127.0.0.1:0"), ("127.0.0.1:9", "127.0.0.2:9")):
        path = tmp_path / "config.yaml"
        path.write_text(f"{TARGET}service: {{listen: '{listen}', metrics: '{metrics}'}}")
        assert load_config(path).service.metrics == metrics
