"""What the commands refuse before anything is started."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import fields
from pathlib import Path

import pytest
from tests.actors.draft.reference_nets import target_folder
from tests.actors.pair.test_foreign_pair import dflash, eagle3
from typer.testing import CliRunner

from outrider.actors import demo
from outrider.actors.rpc.credentials import Credentials
from outrider.actors.train.choice.trainer_registry import TRAINERS
from outrider.client.cli.app import app
from outrider.cluster.config.config_errors import ConfigError, ConfigProblem
from outrider.cluster.process.command_failed import FAILED, UNAVAILABLE, USAGE, CommandFailed
from outrider.cluster.process.ready_file_writer import written
from outrider.cluster.start.commands import config_schema, config_validate, serve, service_config
from outrider.cluster.supervise.admin_file import Admin
from outrider.cluster.supervise.admin_file import written as written_admin_file


def problems_of(file: Path) -> tuple[ConfigProblem, ...]:
    """What is wrong with a configuration file."""
    try:
        config_validate(file)
    except CommandFailed as error:
        cause = error.__cause__
        return cause.problems if isinstance(cause, ConfigError) else ()
    return ()


def test_wrong_configuration_is_a_usage_error_with_every_problem(tmp_path: Path) -> None:
    """Exit code 2, and the text of the configuration's own error."""
    file = tmp_path / "c.yaml"
    file.write_text("drafers: []\nservice: {listen: x}\n")

    with pytest.raises(CommandFailed, match="did you mean 'drafters'") as caught:
        config_validate(file)
    assert caught.value.exit_code == USAGE
    assert len(problems_of(file)) == 2


def test_validated_configuration_is_whole(tmp_path: Path) -> None:
    """Defaults are filled in, in plain values."""
    file = tmp_path / "c.yaml"
    file.write_text("service: {listen: '127.0.0.1:1'}\n")

    assert config_validate(file)["speculation"]["verifier"] == "coupled"
    assert problems_of(file) == ()
    assert "properties" in config_schema()


def test_a_checkpoint_of_another_project_is_told_and_compared_with_the_target(
    tmp_path: Path,
) -> None:
    """Its method and its target need not be said; of a file as of a flag; one that does not fit is a problem of the file."""
    target, _, _ = target_folder(tmp_path / "t")
    folder = dflash(tmp_path / "d")
    file = tmp_path / "c.yaml"
    file.write_text(f"targets: [{{model: {target}}}]\ndrafters: [{{model: {folder}}}]\n")
    told = config_validate(file)["drafters"][0]
    assert (told["method"], told["options"]) == ("dspark", {"target": str(target)})
    flags = service_config(None, targets=[str(target)], drafts=[str(folder)])
    assert (flags.drafters[0].method, flags.drafters[0].options["target"]) == (
        "dspark",
        str(target),
    )
    said = CliRunner().invoke(app, ["config", "validate", str(file)])
    assert "is a DFlash checkpoint (z-lab)" in said.output
    assert "layers 1, 3" in said.output
    odd = dflash(tmp_path / "o", mask_token_id=24)
    file.write_text(f"targets: [{{model: {target}}}]\ndrafters: [{{model: {odd}}}]\n")
    (problem,) = problems_of(file)
    assert "DFlash checkpoint (z-lab), which cannot be run: mask_token_id is 24" in problem.message
    odd = dflash(tmp_path / "x", x=1)
    file.write_text(f"targets: [{{model: {target}}}]\ndrafters: [{{model: {odd}}}]\n")
    said = CliRunner().invoke(app, ["config", "validate", str(file)])
    assert "that these fields of dflash_config change nothing: x" in " ".join(said.output.split())
    kept = eagle3(tmp_path / "e")
    for method, reads in (("hidden_reuse", True), ("dspark", False)):
        drafter = f"{{model: {kept}, method: {method}}}"
        file.write_text(f"targets: [{{model: {target}}}]\ndrafters: [{drafter}]\n")
        found = [problem.message for problem in problems_of(file)]
        assert bool(found) != reads
        assert all(f"which the method {method} does not read" in one for one in found)
    narrow, _, _ = target_folder(tmp_path / "n", hidden_size=12)
    file.write_text(f"targets: [{{model: {narrow}}}]\ndrafters: [{{model: {folder}}}]\n")
    (problem,) = problems_of(file)
    assert problem.path == "drafters[0].model"
    assert "made for 24 numbers a hidden state" in problem.message
    with pytest.raises(CommandFailed, match=r"drafters\[0\].model: .* has 12"):
        serve(targets=[str(narrow)], drafts=[str(folder)], listen="127.0.0.1:0")


def test_an_own_net_of_another_target_or_method_is_a_problem(tmp_path: Path) -> None:
    """As a drafter that would be refused every session; of several targets one must fit."""
    file = tmp_path / "c.yaml"

    def problems(targets: str, drafter: str) -> list[str]:
        file.write_text(f"targets: [{targets}]\ndrafters: [{{{drafter}}}]\n")
        return [problem.message for problem in problems_of(file)]

    other, fitting = "{model: 'demo:draft-small'}", "{model: 'demo:target'}"
    for name in ("dspark", "eagle3", "mlp_speculator"):
        (message,) = problems(other, f"model: 'demo:{name}'")
        assert message.startswith(f"demo:{name}: it was made for 160 numbers a hidden state")
        assert problems(f"{other}, {fitting}", f"model: 'demo:{name}'") == []
    (message,) = problems(fitting, "model: 'demo:draft', method: eagle3")
    assert "'llama', which the method eagle3 does not read" in message
    for method in ("hidden_reuse", "autoregressive", "sorted"):
        (message,) = problems(fitting, f"model: 'demo:dspark', method: {method}")
        assert f"'dspark', which the method {method} does not read" in message
    assert problems(fitting, "model: 'demo:eagle3', method: hidden_reuse") == []
    copied = tmp_path / "net"
    copied.mkdir()
    whole = json.loads((demo.path("dspark") / "config.json").read_text())
    (copied / "config.json").write_text(json.dumps({**whole, "first_slot": 5}))
    (message,) = problems(fitting, f"model: {copied}")
    assert "cannot be run: first_slot is 5; it must be 0 to 1" in message


def test_flags_lie_over_the_file(tmp_path: Path) -> None:
    """What the command line says counts."""
    file = tmp_path / "c.yaml"
    file.write_text("service: {listen: '127.0.0.1:1', max_waiting: 3}\n")
    config = service_config(file, listen="127.0.0.1:2")

    assert (config.service.listen, config.service.max_waiting) == ("127.0.0.1:2", 3)


@pytest.mark.parametrize("first", ["config", "ready_file"])
def test_two_flags_do_not_name_one_file(tmp_path: Path, first: str) -> None:
    """The one would be written over the other, and removed in the end; nothing is touched."""
    file, link = tmp_path / "c.yaml", tmp_path / "link.yaml"
    file.write_text("targets: [{model: /no/such/folder}]\n")
    link.symlink_to(file)
    with pytest.raises(
        CommandFailed, match=f"--{first.replace('_', '-')} and --admin-file both name"
    ) as caught:
        serve(**{first: file, "admin_file": link})  # type: ignore[arg-type]
    assert caught.value.exit_code == USAGE
    assert file.read_text() == "targets: [{model: /no/such/folder}]\n"


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
        ({"ready_file": Path("/proc/ready")}, "--ready-file /proc/ready cannot be written: "),
        ({"admin_file": Path("/proc/admin")}, "--admin-file /proc/admin cannot be written: "),
        ({"listen": "here"}, "'here' is not HOST:PORT"),
        ({"config": Path("/no/such/file.yaml")}, "cannot be read"),
    ],
)
def test_wrong_flags_are_usage_errors(flags: dict[str, object], message: str) -> None:
    """Nothing was started."""
    with pytest.raises(CommandFailed, match=message) as caught:
        serve(**flags)  # type: ignore[arg-type]
    assert caught.value.exit_code == USAGE


@pytest.mark.parametrize("flag", ["ready_file", "admin_file"])
def test_file_of_a_living_service_is_not_taken(tmp_path: Path, flag: str) -> None:
    """Two services that write one file would each remove the other's; a change meant for the one would reach the other."""
    file = tmp_path / "file"
    admin = Admin(address="127.0.0.1:5", credentials=Credentials.fresh(None))
    with (
        written(file, address="127.0.0.1:5", actors=[])
        if flag == "ready_file"
        else written_admin_file(file, admin),
        pytest.raises(
            CommandFailed, match=f"127.0.0.1:5, which runs .process {os.getpid()}"
        ) as caught,
    ):
        serve(**{flag: file})  # type: ignore[arg-type]
    assert caught.value.exit_code == USAGE
    assert f"--{flag.replace('_', '-')} {file}" in str(caught.value)


@pytest.mark.parametrize("flag", ["ready_file", "admin_file"])
def test_file_that_was_left_goes_at_once(tmp_path: Path, flag: str) -> None:
    """Who waits for the file must not find an old one, also where the start then fails."""
    file = tmp_path / "file"
    file.write_text('{"address": "127.0.0.1:5", "pid": 1}')
    with pytest.raises(CommandFailed, match="no such folder"):
        serve(targets=["/no/such/folder"], listen="127.0.0.1:0", **{flag: file})  # type: ignore[arg-type]
    assert not file.exists()


def test_applying_where_nobody_answers_says_so(tmp_path: Path) -> None:
    """With the exit code of a service that is away, whatever the client is."""
    config, admin = tmp_path / "c.yaml", tmp_path / "admin"
    config.write_text("")
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{held.getsockname()[1]}"
        with written_admin_file(admin, Admin(address=address, credentials=Credentials.fresh(None))):
            result = CliRunner().invoke(app, ["apply", str(config), "--admin-file", str(admin)])
    assert result.exit_code == UNAVAILABLE, result.output
    assert f"nobody answers at {address}" in result.stderr


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
    """Exit code 2 before anything is loaded, also where there is nothing to learn from."""
    common = ["train", "mlp_speculator", "--data", "/no/such", "--out", "/no/out"]
    result = CliRunner().invoke(app, [*common, "--heads", "0"])
    assert result.exit_code == 2
    assert "heads is 0" in result.stderr
    result = CliRunner().invoke(app, [*common, "--threads", "9" * 30])
    assert result.exit_code == 2
    assert "threads is 999" in result.stderr
