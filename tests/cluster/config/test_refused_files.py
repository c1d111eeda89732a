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
    "a date for a key": (
        f"{TARGET}drafters: [{{resources: {{2026-01-01: 1}}}}]",
        "drafters[0].resources: the key datetime.date(2026, 1, 1) is of type date; keys must be texts",
    ),
    "a number for a key": (f"{TARGET}service: {{1: 1}}", "service: the key 1 is a number"),
    "a list for a key": ("? [1, 2]\n: 3", "line 1, column 3: a key is a list or a mapping"),
    "a date for a text": (
        f"{TARGET}service: {{advertise: 2026-01-01}}",
        "service.advertise: is of type date; expected text",
    ),
    "bytes for a text": (f"{TARGET}service: {{advertise: !!binary aGk=}}", "is of type bytes"),
    "half a character": (
        'targets: [{model: "\\ud800"}]',
        "targets[0].model: holds half a character",
    ),
    "a NUL character": ('targets: [{model: "a\\0"}]', "targets[0].model: holds a NUL character"),
    "digits of another base": (
        f"{TARGET}service: {{max_waiting: 0x{'f' * 380}}}",
        "service.max_waiting: is a whole number of more than 400 digits",
    ),
    "lists in lists": (
        f"{TARGET}a: {'[' * 60}{']' * 60}",
        "a: lists and mappings are more than 50",
    ),
    "lists without end": ("a: " + "[" * 5000, "lists and mappings are more than 50 deep"),
    "a merged mapping": (f"{TARGET}service: {{<<: {{listen: x}}}}", "<< is not taken"),
    "a port of endless digits": (f"{TARGET}service: {{listen: 'a:{'9' * 5000}'}}", "0 to 65535"),
    "a message longer than its reason": (
        f"{TARGET}drafters: [{{method: suffix, options: {{memory_tokens: {'9' * 300}}}}}]",
        "it must be 0 to 16777216",
    ),
    "no option at all": (
        f"{TARGET}drafters: [{{method: suffix, options: {{memory_tokens: null}}}}]",
        "1 problem\n  drafters[0].options.memory_tokens: must be text, a finite number, true or false, but is None",
    ),
    "one port by two names": (
        f"{TARGET}service: {{listen: 'LOCALHOST:5000', metrics: '127.0.0.1:5000'}}",
        "both at port 5000",
    ),
    "one port of an address with two spellings": (
        f"{TARGET}service: {{listen: '[0:0:0:0:0:0:0:0]:5000', metrics: '[::1]:5000'}}",
        "both at port 5000",
    ),
    "a host of several words": (f"{TARGET}service: {{listen: 'a b:1'}}", "is not HOST:PORT"),
    "a host with a port": (
        f"{TARGET}service: {{advertise: 'a:1'}}",
        "service.advertise: is 'a:1'; expected a host",
    ),
    "a collector without a host": (
        f"{TARGET}service: {{otlp_endpoint: 'http://'}}",
        "service.otlp_endpoint: is 'http://'; expected http://HOST:PORT",
    ),
    "a collector at no port": (
        f"{TARGET}service: {{otlp_endpoint: 'http://a:{'9' * 5000}'}}",
        "from 1 to 65535",
    ),
    "a cluster at no address": (
        f"{TARGET}cluster: {{address: foo}}",
        "cluster.address: is 'foo'; allowed: local, auto, HOST:PORT",
    ),
    "CPUs among resources": (
        "targets: [{model: x, resources: {CPU: 2}}]",
        "targets[0].resources: has 'CPU', which is a resource of Ray's own; write num_cpus",
    ),
    "memory of our own Ray": (
        f"{TARGET}cluster: {{local_resources: {{memory: 2}}}}",
        "cluster.local_resources: has 'memory'",
    ),
    "a CPU in small parts": (
        "targets: [{model: x, num_cpus: 0.00001}]",
        "targets[0].num_cpus: is 1e-05; Ray counts in steps of 0.0001",
    ),
    "one GPU and a half": (
        "targets: [{model: x, device: cuda, num_gpus: 1.5}]",
        "targets[0].num_gpus: is 1.5; more than one GPU must be a whole number",
    ),
    "a truth for a label": (
        "targets: [{model: x, node_labels: {spot: no}}]",
        "targets[0].node_labels.spot: must be a valid string, but is False; put text in quotes",
    ),
    "a truth for a word": (
        f"{TARGET}cluster: {{placement: off}}",
        "cluster.placement: must be 'spread' or 'pack', but is False; put text in quotes",
    ),
    "a key that is no label": (
        "targets: [{model: x, node_labels: {'a b': c}}]",
        "targets[0].node_labels.a b: must match",
    ),
    "a section whose keys are all remarks": (
        f"{TARGET}cluster:\n  # address: auto\n",
        "cluster: must be keys and values, but is empty; write them below it, or leave it out",
    ),
    "a word for a section": (
        f"{TARGET}drafters: [prompt_lookup]",
        "drafters[0]: must be keys and values, but is 'prompt_lookup'",
    ),
    "a number that would be another": (
        f"{TARGET}service: {{max_waiting: 010}}",
        "line 2, column 24: '010' begins with a 0, so that YAML reads it to the base 8",
    ),
    "a key twice": ("targets: [{model: x, model: y}]", "'model' occurs twice"),
    "a truth that is none": (
        f"{TARGET}service: !!bool maybe",
        "line 2, column 10: 'maybe' cannot be read as bool",
    ),
    "a time that is none": (f"{TARGET}service: !!timestamp x", "'x' cannot be read as timestamp"),
    "a day that is none": (f"{TARGET}service: 2026-99-99", "cannot be read as timestamp"),
}


@pytest.mark.parametrize("case", list(FILES))
def test_it_is_refused_with_its_reason(case: str, tmp_path: Path) -> None:
    """Few words, at once, however large it would be."""
    text, says = FILES[case]
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as refused:
        load_config(path)
    told = str(refused.value)
    assert says in told
    assert len(told) < 1_200
    assert "set_int_max_str_digits" not in told


JSON = {
    "a key twice": ('{"targets": [{"model": "a"}], "targets": []}', "'targets' occurs twice"),
    "a key twice among many": (
        "{" + "".join(f'"k{number}": 1, ' for number in range(60_000)) + '"k59999": 1}',
        "'k59999' occurs twice",
    ),
    "digits without end": (f'{{"a": {"9" * 5000}}}', "a whole number of more than 400 digits"),
    "lists without end": ('{"a": ' + "[" * 100_000, "lists and mappings are more than 50 deep"),
    "half a character": ('{"service": {"listen": "\\ud800"}}', "service.listen: holds half"),
    "half a character in a key": ('{"\\ud800": 1}', "the key '\\ud800' holds half a character"),
}


@pytest.mark.parametrize("case", list(JSON))
def test_json_is_refused_with_its_reason(case: str, tmp_path: Path) -> None:
    """Of two values of a key, it would take the last."""
    text, says = JSON[case]
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(ConfigError) as refused:
        load_config(path)
    assert says in str(refused.value)
    assert len(str(refused.value)) < 1_200


def test_ports_may_be_free_ones_or_of_other_addresses(tmp_path: Path) -> None:
    """Then nothing clashes."""
    for listen, metrics in (("127.0.0.1:0", "127.0.0.1:0"), ("127.0.0.1:9", "127.0.0.2:9")):
        path = tmp_path / "config.yaml"
        path.write_text(f"{TARGET}service: {{listen: '{listen}', metrics: '{metrics}'}}")
        assert load_config(path).service.metrics == metrics
