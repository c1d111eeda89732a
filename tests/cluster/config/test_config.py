"""The configuration and what is said about mistakes in it."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from outrider.cluster.config.config_errors import ConfigError, ConfigProblem
from outrider.cluster.config.config_file import read_mapping, written
from outrider.cluster.config.schema import load_config, name_of, parse_config, schema, with_flags

FULL = """
service:
  listen: 0.0.0.0:6000
  default_max_tokens: 32
cluster:
  address: local
  placement: pack
  restarts: {backoff_s: 3.0}
targets:
  - {name: big, model: org/big, device: cuda, dtype: bfloat16, resources: {target_node: 1}}
drafters:
  - {model: org/small, replicas: 2}
  - {method: prompt_lookup, width: 1}
speculation: {verifier: exact_match, max_nodes: 32}
"""


def problems(data: dict[str, Any]) -> dict[str, str]:
    """What is wrong with a configuration, by place."""
    with pytest.raises(ConfigError) as caught:
        parse_config(data, source="test.yaml")
    return {problem.path: problem.message for problem in caught.value.problems}


def test_nothing_is_a_service() -> None:
    """The demonstration pair on loopback."""
    config = parse_config({}, source="test")

    assert [target.model for target in config.targets] == ["demo:target"]
    assert [drafter.model for drafter in config.drafters] == ["demo:draft"]
    assert config.service.listen.startswith("127.0.0.1:")


def test_target_alone_decodes_plainly() -> None:
    """The shipped drafter knows nothing of another target's vocabulary."""
    assert parse_config({"targets": [{"model": "t"}]}, source="test").drafters == ()


def test_file_is_read(tmp_path: Path) -> None:
    """YAML, with names made from models."""
    file = tmp_path / "service.yaml"
    file.write_text(FULL)
    config = load_config(file)

    assert config.targets[0].gpus == 1.0
    assert [drafter.name for drafter in config.drafters] == ["small", "prompt_lookup"]
    assert config.cluster.restarts.backoff_s == 3.0


def test_json_is_read_too(tmp_path: Path) -> None:
    """The same content, the same configuration."""
    text, data = tmp_path / "service.yaml", tmp_path / "service.json"
    text.write_text(FULL)
    data.write_text(json.dumps(yaml.safe_load(FULL), indent="\t"))

    assert load_config(data) == load_config(text)


@pytest.mark.parametrize(
    "number", ["1e6", "+1E6", "10.e+5", "0.1e7", "1.0e+6", "1_000_000", "1000000"]
)
def test_a_number_is_one_in_every_form(tmp_path: Path, number: str) -> None:
    """As in JSON; in quotes it is a text, also where the file is written again."""
    file = tmp_path / "service.yaml"
    text = "drafters: [{method: prompt_lookup, bytes_per_token: NUMBER}]\n"
    file.write_text(text.replace("NUMBER", number))
    assert load_config(file).drafters[0].bytes_per_token == 1e6
    file.write_text(text.replace("NUMBER", f"'{number}'"))
    for _ in range(2):
        data = read_mapping(file)
        assert data["drafters"][0]["bytes_per_token"] == number
        file.write_bytes(written(data))


@pytest.mark.parametrize(("number", "value"), [("0", 0), ("-0", 0), ("0x10", 16), ("10", 10)])
def test_whole_numbers_that_cannot_be_misread(tmp_path: Path, number: str, value: int) -> None:
    """A zero alone, and another base that is written as one."""
    file = tmp_path / "service.yaml"
    file.write_text(f"service: {{max_waiting: {number}}}\n")
    assert load_config(file).service.max_waiting == value


def test_empty_file_is_the_default(tmp_path: Path) -> None:
    """A file with comments alone changes nothing."""
    file = tmp_path / "service.yaml"
    file.write_text("# nothing yet\n")

    assert load_config(file) == parse_config({}, source="test")


def test_unknown_key_is_refused_with_a_suggestion() -> None:
    """At the top, inside a section, and inside a list."""
    found = problems(
        {
            "drafers": [],
            "cluster": {"restarts": {"backof_s": 1}},
            "targets": [{"model": "m", "dtyp": "float32"}],
        }
    )

    assert found == {
        "": "unknown key 'drafers'; did you mean 'drafters'?",
        "cluster.restarts": "unknown key 'backof_s'; did you mean 'backoff_s'?",
        "targets[0]": "unknown key 'dtyp'; did you mean 'dtype'?",
    }


@pytest.mark.parametrize(
    ("keys", "bounds"),
    [
        ({}, (1, 1, 1)),
        ({"replicas": 3}, (3, 3, 3)),
        ({"max_replicas": 4}, (1, 1, 4)),
        ({"min_replicas": 2, "max_replicas": 4}, (2, 2, 4)),
        ({"min_replicas": 1, "replicas": 3}, (1, 3, 3)),
        ({"min_replicas": 1, "replicas": 2, "max_replicas": 4}, (1, 2, 4)),
    ],
)
def test_bounds_of_replicas(keys: dict[str, int], bounds: tuple[int, int, int]) -> None:
    """What is left out follows from what is given; each replica keeps its name when the number changes."""
    (target,) = parse_config({"targets": [{"model": "t", **keys}]}, source="test").targets
    assert (target.least, target.start, target.most) == bounds
    assert target.replica_names(3) == ("t", "t-1", "t-2")


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (
            {"replicas": 5, "max_replicas": 4},
            "replicas is 5 and max_replicas is 4: must rise in this order",
        ),
        ({"min_replicas": 3, "max_replicas": 2}, "min_replicas is 3 and max_replicas is 2"),
        ({"min_replicas": 0}, "min_replicas"),
    ],
)
def test_bounds_that_contradict_each_other_are_refused(keys: dict[str, int], said: str) -> None:
    """With the numbers."""
    with pytest.raises(ConfigError, match=said):
        parse_config({"targets": [{"model": "t", **keys}]}, source="test")


@pytest.mark.parametrize(("key", "least"), [("num_slots", 1), ("max_context", 4)])
@pytest.mark.parametrize("value", [-1, 0, 1.5, "all", True, None])
def test_room_is_a_number_or_left_open(key: str, least: int, value: object) -> None:
    """One sentence says what is allowed; the least number is taken, and so is `auto`."""
    found = problems({"targets": [{"model": "m", key: value}]})

    assert list(found) == [f"targets[0].{key}"]
    assert f"must be auto or a whole number from {least} to" in found[f"targets[0].{key}"]
    for taken in (least, "auto"):
        config = parse_config({"targets": [{"model": "m", key: taken}]}, source="test")
        assert getattr(config.targets[0], key) == taken


@pytest.mark.parametrize("word", ["auto", "on", "off"])
def test_a_switch_is_taken_as_it_is_written(tmp_path: Path, word: str) -> None:
    """Also without quotes, where YAML reads a truth; editors and charts say the same."""
    file = tmp_path / "service.yaml"
    for text in (word, f"'{word}'"):
        file.write_text(f"targets: [{{model: m, cuda_graphs: {text}}}]\n")
        assert load_config(file).targets[0].cuda_graphs == word
        jsonschema.validate(yaml.safe_load(file.read_text()), schema())
    assert (
        "'auto', 'on' or 'off'"
        in problems({"targets": [{"model": "m", "cuda_graphs": 1}]})["targets[0].cuda_graphs"]
    )


def test_key_unlike_any_other_lists_what_is_allowed() -> None:
    """A suggestion that is none would mislead."""
    found = problems({"cluster": {"restarts": {"zzz": 1}}})

    assert "allowed here: backoff_s, healthy_after_s," in found["cluster.restarts"]


def test_every_problem_is_reported_at_once() -> None:
    """Mending one at a time wastes a start each."""
    found = problems(
        {
            "service": {
                "listen": "nowhere",
                "max_waiting": "3",
                "metrics": "9464",
                "otlp_endpoint": "localhost:4317",
                "log_format": "xml",
            },
            "cluster": {"lease_s": 0.1, "placement": "TIGHT"},
            "targets": [{"model": "m", "num_threads": 0, "device": "tpu"}],
            "speculation": {"verifier": "best"},
        }
    )

    assert sorted(found) == [
        "cluster.lease_s",
        "cluster.placement",
        "service.listen",
        "service.log_format",
        "service.max_waiting",
        "service.metrics",
        "service.otlp_endpoint",
        "speculation.verifier",
        "targets[0].device",
        "targets[0].num_threads",
    ]
    assert "must be 'spread' or 'pack'" in found["cluster.placement"]
    assert found["targets[0].num_threads"] == "must be greater than or equal to 1, but is 0"


@pytest.mark.parametrize(
    ("drafter", "message"),
    [
        ({}, "model is missing"),
        (
            {"model": "m", "method": "magic"},
            "method is 'magic'; allowed: autoregressive, consensus, ",
        ),
        ({"model": "m", "method": "prompt_lookup"}, "prompt_lookup drafts without one"),
        ({"model": "m", "device": "cuda", "num_gpus": 0}, "num_gpus is 0 with device cuda"),
        (
            {"method": "prompt_lookup", "device": "cuda"},
            "device is cuda, but prompt_lookup has no model that would run there",
        ),
        ({"model": "m", "device": "cuda:1"}, "device is cuda:1, and num_gpus 1: Ray shows each"),
        ({"model": "m", "device": "cuda:1", "num_gpus": 0.5}, "num_gpus 0.5"),
        ({"model": "m", "prefill_chunk": 512, "max_scratch": 16}, "must fit into the scratch rows"),
    ],
)
def test_contradictions_within_an_actor(drafter: dict[str, Any], message: str) -> None:
    """Two keys that cannot both be meant."""
    found = problems({"targets": [{"model": "t"}], "drafters": [drafter]})

    assert message in found["drafters[0]"]


@pytest.mark.parametrize(
    "gpu",
    [
        {"device": "cuda:0"},
        {"device": "cuda:0", "num_gpus": 0.5},
        {"device": "cuda:1", "num_gpus": 2},
    ],
)
def test_a_gpu_among_those_that_are_reserved(gpu: dict[str, Any]) -> None:
    """Counted as the actor sees them."""
    (target,) = parse_config({"targets": [{"model": "m", **gpu}]}, source="test").targets
    assert target.device == gpu["device"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"targets": []}, "targets is empty"),
        ({"targets": [{"model": "x/a"}, {"model": "y/a"}]}, "'a' is taken by targets[0]"),
        (
            {"targets": [{"model": "x/a"}], "drafters": [{"model": "y/a"}]},
            "'a' is taken by targets[0]",
        ),
        ({"targets": [{"model": "coordinator"}]}, "is taken by the coordinator"),
        (
            {
                "targets": [{"model": "a", "replicas": 2}],
                "drafters": [{"model": "b", "name": "a-1"}],
            },
            "'a-1' is taken by targets[0]",
        ),
    ],
)
def test_contradictions_between_actors(data: dict[str, Any], message: str) -> None:
    """Names are addresses: there are no two of one."""
    assert message in problems(data)[""]


def test_a_verifier_that_no_drafter_can_serve() -> None:
    """Every request that names no other would be decoded plainly, and nobody would be told why."""
    rows, text = {"model": "d"}, {"method": "prompt_lookup"}
    data: dict[str, Any] = {"targets": [{"model": "t"}], "speculation": {"verifier": "specinfer"}}
    found = problems({**data, "drafters": [text, {"method": "suffix"}]})
    assert (
        "'specinfer', which needs a drafter that gives probabilities; prompt_lookup, suffix"
        in found[""]
    )
    for drafters in ([], [rows], [text, rows]):
        parse_config({**data, "drafters": drafters}, source="test")
    parse_config({"targets": [{"model": "t"}], "drafters": [text]}, source="test")


def test_a_draft_length_that_no_drafter_offers(tmp_path: Path) -> None:
    """Likewise; a model that is elsewhere may offer any, and one that is here a trained one if it lies beside it."""
    (tmp_path / "config.json").write_text("{}")
    data: dict[str, Any] = {"targets": [{"model": "t"}]}
    text, here = {"method": "suffix"}, {"model": str(tmp_path), "name": "d"}
    refused = [("confidence", [text]), ("decision", [text, here]), ("decision", [here])]
    for length, drafters in refused:
        found = problems({**data, "speculation": {"draft_length": length}, "drafters": drafters})
        start = f"speculation.draft_length is {length!r}, which none of the drafters offers: "
        assert start in found[""]
        assert ("d offers full, confidence" in found[""]) == (here in drafters)
        assert ("suffix offers full" in found[""]) == (text in drafters)
        assert ("outrider train decision" in found[""]) == (length == "decision")
    taken: list[tuple[str, list[dict[str, str]]]] = [
        ("full", [text]),
        ("confidence", [text, here]),
        ("confidence", []),
        ("decision", [text, {"model": "owner/elsewhere"}]),
        ("decision", [{"model": "demo:draft"}]),
        ("confidence", [{"model": "demo:eagle3"}]),
    ]
    for length, drafters in taken:
        settings = {**data, "speculation": {"draft_length": length}, "drafters": drafters}
        parse_config(settings, source="test")


@pytest.mark.parametrize("value", [None, 5, "x", {"model": "m"}])
def test_targets_that_are_no_list(value: object) -> None:
    """A single mapping is the commonest slip."""
    assert "must be a list" in problems({"targets": value})["targets"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a: 1\na: 2\n", "line 2, column 1: the key 'a' occurs twice"),
        (b"a: [\n", "line 2, column 1"),
        (b"- 1\n", "holds a list"),
        (b"\xff\xfe\x00", "not UTF-8"),
        (b"a: \x00", "not valid"),
        (b"a: " + b"x" * (1 << 20), "has more than"),
        (b"? [1, 2]\n: 3\n", "test"),
    ],
)
def test_unreadable_content(tmp_path: Path, content: bytes, message: str) -> None:
    """Each says what was found, and none is a traceback."""
    file = tmp_path / "test.yaml"
    file.write_bytes(content)

    with pytest.raises(ConfigError, match=message.replace("[", r"\[")):
        load_config(file)


def test_missing_file(tmp_path: Path) -> None:
    """Names the file and the reason."""
    with pytest.raises(ConfigError, match=r"no\.yaml: 1 problem\n  cannot be read: No such file"):
        load_config(tmp_path / "no.yaml")


def test_error_crosses_processes() -> None:
    """It is raised in workers, too."""
    error = ConfigError("f", (ConfigProblem("a", "b"),))

    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_flags_replace_lists_and_keep_the_rest() -> None:
    """`--target` and `--draft` speak of models, everything else stays as the file says."""
    data = {
        "service": {"reflection": False},
        "targets": [{"model": "t"}],
        "drafters": [{"model": "d"}],
    }
    merged = with_flags(data, targets=("x",), drafts=("prompt_lookup", "y"), listen="0.0.0.0:1")
    config = parse_config(merged, source="test")

    assert [target.model for target in config.targets] == ["x"]
    assert [(drafter.method, drafter.model) for drafter in config.drafters] == [
        ("prompt_lookup", None),
        ("autoregressive", "y"),
    ]
    assert (config.service.listen, config.service.reflection) == ("0.0.0.0:1", False)
    assert data["targets"] == [{"model": "t"}]


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("demo:target", "demo-target"),
        ("meta-llama/Llama-3.2-1B", "Llama-3.2-1B"),
        ("/data/models/my model/", "my-model"),
        ("tabular:/x/table.npz", "table"),
        ("...", "model"),
    ],
)
def test_names_come_from_models(model: str, name: str) -> None:
    """Short enough to type, and allowed as a name."""
    assert name_of(model) == name


def test_schema_accepts_what_is_accepted_and_refuses_unknown_keys() -> None:
    """Editors say the same as we do."""
    validator = jsonschema.Draft202012Validator(schema())

    validator.check_schema(schema())
    assert list(validator.iter_errors(yaml.safe_load(FULL))) == []
    assert list(validator.iter_errors({})) == []
    assert [error.message for error in validator.iter_errors({"drafers": []})] != []


def test_schema_describes_every_key() -> None:
    """The documentation of the configuration is the schema."""
    definitions = schema()["$defs"].values()
    undescribed = [
        f"{definition['title']}.{key}"
        for definition in definitions
        for key, value in definition.get("properties", {}).items()
        if "description" not in value and "$ref" not in value
    ]

    assert undescribed == []


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"public": {"cert": "/c"}}, "cert and key go together"),
        ({"public": {"client_ca": "/c"}}, "client_ca needs cert and key"),
        ({"public": {"tokens": "tokens"}}, "must be an absolute path"),
        ({"internal": {"cert": "/c", "key": "/k"}}, "the key .ca. is missing"),
        (
            {"internal": {"cert": "/c", "key": "/k", "ca": "/a", "name": ""}},
            "security.internal.name",
        ),
        ({"public": {"certs": "/c"}}, "cert"),
    ],
)
def test_security_is_whole(section: dict[str, Any], message: str) -> None:
    """Half a certificate protects nothing."""
    with pytest.raises(ConfigError, match=message):
        parse_config({"security": section}, source="test")
