"""What the commands refuse before anything is started."""

from __future__ import annotations

import os
from dataclasses import fields
from pathlib import Path

import pytest
from typer.testing import CliRunner

from outrider.actors.train.choice.trainer_registry import TRAINERS
from outrider.client.cli.app import app
from outrider.cluster.process.ready_file_writer import written
from outrider.cluster.start.commands import (
    FAILED,
    USAGE,
    CommandFailed,
    config_problems,
    config_schema,
    config_validate,
    serve,
    service_config,
)


def test_wrong_configuration_is_a_usage_error_with_every_problem(tmp_path: Path) -> None:
    """Exit code 2, and the text of the configuration's own error."""
    file = tmp_path / "c.yaml"
    file.write_text("drafers: []\nservice: {listen: x}\n")

    with pytest.raises(CommandFailed, match="did you mean 'drafters'") as caught:
        config_validate(file)
    assert caught.value.exit_code == USAGE
    assert len(config_problems(file)) == 2


def test_validated_configuration_is_whole(tmp_path: Path) -> None:
    """Defaults are filled in, in plain values."""
    file = tmp_path / "c.yaml"
    file.write_text("service: {listen: '127.0.0.1:1'}\n")

    assert config_validate(file)["speculation"]["verifier"] == "coupled"
    assert config_problems(file) == ()
    assert "properties" in config_schema()


def test_flags_lie_over_the_file(tmp_path: Path) -> None:
    """What the command line says counts."""
    file = tmp_path / "c.yaml"
    file.write_text("service: {listen: '127.0.0.1:1', max_waiting: 3}\n")
    config = service_config(file, listen="127.0.0.1:2")

    assert (config.service.listen, config.service.max_waiting) == ("127.0.0.1:2", 3)


def test_missing_model_is_told_before_ray_starts() -> None:
    """Within a second, by the key that holds it; exit code 1."""
    with pytest.raises(CommandFailed, match=r"targets\[0\].model: .*/no/such/folder") as caught:
        serve(targets=["/no/such/folder"], listen="127.0.0.1:0")
    assert caught.value.exit_code == FAILED


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"log_level": "loud"}, "--log-level is 'loud'; allowed: debug"),
        ({"ready_file": Path("/no/such/folder/ready")}, "--ready-file"),
        ({"listen": "here"}, "'here' is not HOST:PORT"),
        ({"config": Path("/no/such/file.yaml")}, "cannot be read"),
    ],
)
def test_wrong_flags_are_usage_errors(flags: dict[str, object], message: str) -> None:
    """Nothing was started."""
    with pytest.raises(CommandFailed, match=message) as caught:
        serve(**flags)  # type: ignore[arg-type]
    assert caught.value.exit_code == USAGE


def test_ready_file_of_a_living_service_is_not_taken(tmp_path: Path) -> None:
    """Two services that write one file would each remove the other's."""
    file = tmp_path / "ready"
    with (
        written(file, address="127.0.0.1:5", actors=[]),
        pytest.raises(
            CommandFailed, match=f"127.0.0.1:5, which runs .process {os.getpid()}"
        ) as caught,
    ):
        serve(ready_file=file)
    assert caught.value.exit_code == USAGE


def test_ready_file_that_was_left_goes_at_once(tmp_path: Path) -> None:
    """Who waits for the file must not find an old one, also where the start then fails."""
    file = tmp_path / "ready"
    file.write_text('{"address": "127.0.0.1:5", "pid": 1}')
    with pytest.raises(CommandFailed, match="no such folder"):
        serve(targets=["/no/such/folder"], listen="127.0.0.1:0", ready_file=file)
    assert not file.exists()


@pytest.mark.parametrize("name", TRAINERS)
def test_every_trainer_is_a_command_with_its_options(name: str) -> None:
    """Each field of its options is a flag, with its docstring for help."""
    result = CliRunner().invoke(app, ["train", name, "--help"], env={"COLUMNS": "300"})
    assert result.exit_code == 0, result.output
    for field in fields(TRAINERS[name].options):
        flag = field.metadata.get("flags", (f"--{field.name.replace('_', '-')}",))[0]
        assert flag.partition("/")[0] in result.output
        assert TRAINERS[name].option_docs[field.name].split(";")[0][:60] in result.output


def test_what_a_trainer_refuses_names_the_option() -> None:
    """Exit code 2 before anything is loaded, and 1 where there is nothing to learn from."""
    common = ["train", "mlp_speculator", "--data", "/no/such", "--out", "/no/out"]
    result = CliRunner().invoke(app, [*common, "--heads", "0"])
    assert result.exit_code == 2
    assert "heads is 0" in result.stderr
