"""Files that a command names: in the job's folder, carried along, or missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.jobs.parsing import Parser

from outrider.cluster.jobs.arguments import Carried, check_outputs, replaced, with_files
from outrider.cluster.process.command_failed import CommandFailed


def parse(arguments: Sequence[str]) -> Mapping[str, Any]:
    """A command of two paths and two options."""
    parser = Parser()
    parser.add_argument("source")
    parser.add_argument("destination")
    parser.add_argument("-m", "--model")
    parser.add_argument("--prompts", type=Path)
    return vars(parser.parse_args(list(arguments)))


def test_file_elsewhere_is_carried_along(tmp_path: Path) -> None:
    """Only the argument that names it is changed, though another one reads the same."""
    file = tmp_path / "in.jsonl"
    file.write_text("{}")
    arguments = ["--model", str(file), str(file), "s3://bucket/out.jsonl"]
    changed, carried = with_files("batch", arguments, parse, folder=None)

    assert changed == ["--model", str(file), "outrider-files/in.jsonl", "s3://bucket/out.jsonl"]
    assert carried == (Carried("outrider-files/in.jsonl", file),)


def test_file_in_the_folder_stays_as_it_is(tmp_path: Path) -> None:
    """A relative path means the same there."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "in.jsonl").write_text("{}")
    arguments = ["data/in.jsonl", "/shared/out.jsonl"]

    names = ["data/in.jsonl", "other"]
    assert with_files("batch", arguments, parse, folder=tmp_path, names=names) == (arguments, ())


def test_path_that_leaves_the_folder_is_carried_along(tmp_path: Path) -> None:
    """Upwards, and by a link, whose file the archive would hold but whose place it would not."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "in.jsonl").write_text("{}")
    changed, carried = with_files(
        "batch", ["../in.jsonl", "/out"], parse, folder=tmp_path / "folder"
    )

    assert changed == ["outrider-files/in.jsonl", "/out"]
    assert [file.source and file.source.resolve() for file in carried] == [
        (tmp_path / "in.jsonl").resolve()
    ]


def test_address_of_a_store_is_left_alone() -> None:
    """It means the same everywhere."""
    arguments = ["s3://bucket/in.jsonl", "s3://bucket/out.jsonl"]

    assert with_files("batch", arguments, parse, folder=None) == (arguments, ())


@pytest.mark.parametrize(
    ("source", "message"),
    [("missing.jsonl", "no file missing.jsonl here"), ("/tmp", "/tmp is a folder outside")],
)
def test_refused(source: str, message: str) -> None:
    """With the option for a path of the cluster."""
    with pytest.raises(CommandFailed, match=message) as caught:
        with_files("batch", [source, "/out"], parse, folder=None)
    assert "--paths-on-cluster" in str(caught.value)


@pytest.mark.parametrize("form", [("--prompts", "p"), ("--prompts=p",), ("-m", "x", "--prompts=p")])
def test_option_is_found_in_each_form(form: tuple[str, ...]) -> None:
    """Apart and joined."""
    changed = replaced(["a", *form, "b"], parse, "prompts", "new")

    assert parse(changed)["prompts"] == Path("new")
    assert {**parse(changed), "prompts": 0} == {**parse(["a", *form, "b"]), "prompts": 0}


def test_result_in_the_job_s_folder_is_refused() -> None:
    """Ray removes the folder with the job."""
    with pytest.raises(CommandFailed, match=r"out.jsonl would be written to the job's own folder"):
        check_outputs("batch", {"destination": "out.jsonl"})
    check_outputs("batch", {"destination": "/shared/out.jsonl", "summary": None})
    check_outputs("batch", {"destination": "s3://bucket/out.jsonl"})


def test_each_of_several_results_outlives_the_job() -> None:
    """A decision model is written into the folder of its draft model."""
    with pytest.raises(CommandFailed, match=r"mine would be written to the job's own folder"):
        check_outputs("train", {"drafts": (Path("/shared/a"), Path("mine"))})
    check_outputs("train", {"drafts": (Path("/shared/a"),), "out": None})
    check_outputs("train", {"drafts": ()})
