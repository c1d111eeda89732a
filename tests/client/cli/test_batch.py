"""`outrider batch` against a scripted service."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from tests.client.batch.lines import chat, completion, encode, read, write

from outrider.client.batch.record import seed_of

if TYPE_CHECKING:
    from tests.client.cli.conftest import Run
    from tests.client.conftest import Failure, FakeService


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A file of a few records."""
    return write(
        tmp_path / "in.jsonl",
        completion("story", "once", metadata={"category": "prose"}, stop=["END"]),
        chat("question", metadata={"category": "talk"}),
        completion("numbers", [1, 2, 3], n=2, seed=5, metadata={"category": "prose"}),
    )


def by_name(lines: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The answers, each name once."""
    names = [line["custom_id"] for line in lines]
    assert sorted(names) == sorted(set(names))
    return dict(zip(names, lines, strict=True))


def test_answers_have_the_shape_of_openai(
    run: Run, fake: FakeService, source: Path, tmp_path: Path
) -> None:
    """Completions and chats, their choices and their usage."""
    out = tmp_path / "out.jsonl"
    result = run("batch", str(source), str(out), "-a", fake.address)
    assert result.exit_code == 0, result.output
    found = by_name(read(out))
    for line in found.values():
        assert set(line) == {"id", "custom_id", "response", "error"}
        assert line["error"] is None
        assert line["response"]["status_code"] == 200
        assert line["response"]["request_id"]
    story = found["story"]["response"]["body"]
    text = fake.output(seed_of("story"), max_tokens=12).decode(errors="replace")
    assert story["object"] == "text_completion"
    assert story["model"] == "demo"
    assert story["system_fingerprint"] == "f00d"
    assert story["choices"] == [
        {
            "index": 0,
            "text": text,
            "logprobs": None,
            "finish_reason": "length",
            "stop_reason": None,
        }
    ]
    assert story["usage"]["completion_tokens"] == 12
    assert story["usage"]["total_tokens"] == story["usage"]["prompt_tokens"] + 12
    assert story["outrider"]["seed"] == seed_of("story")
    answer = found["question"]["response"]["body"]
    assert answer["object"] == "chat.completion"
    assert answer["choices"][0]["message"]["role"] == "assistant"
    assert answer["choices"][0]["message"]["content"]
    two = found["numbers"]["response"]["body"]
    assert [choice["index"] for choice in two["choices"]] == [0, 1]
    assert two["usage"]["completion_tokens"] == 24
    sent = {request.WhichOneof("prompt"): request for request in fake.requests}
    assert list(sent["text"].sampling.stop) == ["END"]
    assert sent["chat"].chat.messages[0].content == "hi"
    assert (sent["tokens"].sampling.seed, sent["tokens"].sampling.n) == (5, 2)


def test_summary(run: Run, fake: FakeService, source: Path, tmp_path: Path) -> None:
    """A table for people and a file for programs, by category."""
    summary = tmp_path / "summary.json"
    result = run(
        *("batch", str(source), str(tmp_path / "out.jsonl"), "-a", fake.address),
        *("--summary", str(summary)),
    )
    assert "3 of 3 records" in result.stdout
    assert "prose" in result.stdout
    value = json.loads(summary.read_text())
    assert value["records"] == value["total"]["ok"] == 3
    assert value["concurrency"] == 8  # what the service's target holds
    assert value["tokens"] == value["total"]["completion_tokens"] == 48
    assert value["tokens_per_s"] > 0
    assert value["categories"]["prose"]["ok"] == 2
    assert value["categories"]["talk"]["acceptance"] == pytest.approx(16 / 30)
    assert value["total"]["tokens_per_pass"] == pytest.approx(2.5)
    assert value["baseline"] is None


def test_progress_without_a_terminal(run: Run, fake: FakeService, tmp_path: Path) -> None:
    """A line for each tenth, for the log of a job."""
    source = write(tmp_path / "many.jsonl", *(completion(f"r{number}") for number in range(20)))
    done = run("batch", str(source), str(tmp_path / "out.jsonl"), "-a", fake.address)
    told = [line for line in done.stderr.splitlines() if " of 20 records" in line]
    assert [line.split()[0] for line in told] == [str(number) for number in range(2, 21, 2)]
    assert told[-1].endswith("240 tokens")


def test_a_second_run_has_nothing_to_do(
    run: Run, fake: FakeService, source: Path, tmp_path: Path
) -> None:
    """The output stays as it is, byte for byte, and the summary is still of all."""
    out = tmp_path / "out.jsonl"
    run("batch", str(source), str(out), "-a", fake.address)
    content, asked = out.read_bytes(), len(fake.requests)
    result = run("batch", str(source), str(out), "-a", fake.address)
    assert result.exit_code == 0, result.output
    assert (out.read_bytes(), len(fake.requests)) == (content, asked)
    assert "0 of 3 records" in result.stdout
    assert "3 were done before" in result.stdout


def test_lines_that_cannot_be_run_are_answered_so(
    run: Run, fake: FakeService, tmp_path: Path
) -> None:
    """The others run; the command ends with 1; a second run repeats neither."""
    source = write(
        tmp_path / "in.jsonl",
        completion("good"),
        b"{",
        completion("tools", tools=[]),
        completion("twin"),
        completion("twin"),
        completion("url") | {"url": "/v1/embeddings"},
    )
    out = tmp_path / "out.jsonl"
    for _ in range(2):
        result = run("batch", str(source), str(out), "-a", fake.address)
        assert result.exit_code == 1, result.output
        assert "5" in result.stdout
        lines = read(out)
        codes = sorted(line["error"]["code"] for line in lines if line["error"])
        assert codes == [
            "duplicate_custom_id",
            "duplicate_custom_id",
            "invalid_json",
            "unknown_url",
            "unsupported_field",
        ]
        assert len({line["id"] for line in lines}) == len(lines) == 6
        assert all(line["response"] is None for line in lines if line["error"])
    assert len(fake.requests) == 1


def test_strict_refuses_by_line(run: Run, fake: FakeService, tmp_path: Path) -> None:
    """Nothing is sent, and nothing is written."""
    source = write(tmp_path / "in.jsonl", completion("a"), b"{", completion("b", tools=[]))
    out = tmp_path / "out.jsonl"
    result = run("batch", str(source), str(out), "-a", fake.address, "--strict")
    assert result.exit_code == 2
    assert "line 2: is not JSON" in result.stderr
    assert "line 3: body.tools is not supported" in result.stderr
    assert not out.exists()
    assert fake.requests == []


def test_what_the_service_refuses_is_that_record_alone(
    run: Run, fake: FakeService, failure: type[Failure], tmp_path: Path
) -> None:
    """Its answer has the status, the code and the field, as the body names it."""
    refusal = failure(
        code=grpc.StatusCode.INVALID_ARGUMENT, details="top_p is 3", field="sampling.top_p"
    )
    fake.failures = [refusal]
    source = write(tmp_path / "in.jsonl", completion("a", top_p=3), completion("b", model="other"))
    out = tmp_path / "out.jsonl"
    result = run("batch", str(source), str(out), "-a", fake.address, "--concurrency", "1")
    assert result.exit_code == 1
    assert "failed: 1 invalid_request, 1 not_found" in result.stdout
    found = by_name(read(out))
    assert found["a"]["response"]["status_code"] == 400
    assert found["a"]["response"]["body"]["error"]["param"] == "body.top_p"
    assert found["a"]["error"] == {"code": "invalid_request", "message": "top_p is 3"}
    assert found["b"]["response"]["status_code"] == 404
    assert found["b"]["error"]["code"] == "not_found"


@pytest.mark.parametrize(
    "content", [b"", b"\n\n", b"\n" * 3 + b"  \n"], ids=["empty", "blank", "spaces"]
)
def test_an_empty_file(run: Run, fake: FakeService, tmp_path: Path, content: bytes) -> None:
    """Is refused."""
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_bytes(content)
    result = run("batch", str(source), str(out), "-a", fake.address)
    assert result.exit_code == 2
    assert "holds no record" in result.stderr
    assert not out.exists()


def test_an_input_that_has_changed(
    run: Run, fake: FakeService, source: Path, tmp_path: Path
) -> None:
    """Is refused by the record's name; records may be added."""
    out = tmp_path / "out.jsonl"
    run("batch", str(source), str(out), "-a", fake.address)
    content = out.read_bytes()
    with source.open("ab") as file:
        file.write(encode(completion("more")) + b"\n")
    assert run("batch", str(source), str(out), "-a", fake.address).exit_code == 0
    assert out.read_bytes().startswith(content)
    assert by_name(read(out)).keys() == {"story", "question", "numbers", "more"}
    source.write_bytes(source.read_bytes().replace(b"once", b"twice"))
    result = run("batch", str(source), str(out), "-a", fake.address)
    assert result.exit_code == 2
    assert "has changed" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("{in}", "{in}"), "same file"),
        (("{in}", "file://{in}"), "same file"),
        (("none.jsonl", "{out}"), "cannot be read"),
        (("{in}", "none/out.jsonl"), "cannot be written"),
        (("{in}", "{out}", "--concurrency", "0"), "concurrency"),
        (("{in}", "{out}", "--summary", "none/summary.json"), "no folder"),
        (("{in}", "nosuch://out"), "nosuch"),
        (("{in}", "{out}", "--shards", "-1"), "shards"),
        (("nosuch://in", "{out}"), "nosuch"),
        (("{in}", "{out}", "--summary", "{in}"), "input and --summary are the same file"),
        (("{in}", "{out}", "--summary", "{out}"), "output and --summary are the same file"),
        (("{in}", "{link}"), "same file"),
        (("{in}", "{out}", "--summary", "{folder}"), "--summary {folder} is a folder"),
        (("{folder}", "{out}"), "input {folder} is a folder"),
        (("{in}", "{folder}"), "output {folder} is a folder"),
        (("{in}", "/dev/null"), "output /dev/null is no ordinary file"),
        (("{in}", "{out}\0"), "zero byte"),
        (("{in}", "{deep}"), "is no answer of a batch"),
        (("{in}", "{out}", "-m", "\udcff"), "--model is"),
    ],
)
def test_wrong_usage(
    run: Run,
    fake: FakeService,
    source: Path,
    tmp_path: Path,
    arguments: tuple[str, ...],
    message: str,
) -> None:
    """Ends with 2, before anything is sent."""
    folder, link, deep = tmp_path / "folder", tmp_path / "link", tmp_path / "deep"
    folder.mkdir()
    link.hardlink_to(source)
    deep.write_text("[" * 100_000)
    places = {
        "in": str(source),
        "out": str(tmp_path / "out.jsonl"),
        **{path.name: str(path) for path in (folder, link, deep)},
    }
    filled = [argument.format(**places) for argument in arguments]
    content = source.read_bytes()
    result = run("batch", *filled, "-a", fake.address)
    assert result.exit_code == 2, result.output
    assert message.format(**places) in result.stderr
    assert fake.requests == []
    assert source.read_bytes() == content


@pytest.mark.parametrize(
    "places", [("{in}", "ftp://nowhere.invalid/out"), ("ftp://nowhere.invalid/in", "out")]
)
def test_a_store_that_cannot_be_reached_is_named(
    run: Run, fake: FakeService, source: Path, places: tuple[str, ...]
) -> None:
    """Some are connected to as soon as they are named."""
    pytest.importorskip("fsspec")
    filled = [place.format(**{"in": str(source)}) for place in places]
    result = run("batch", *filled, "-a", fake.address)
    assert result.exit_code == 1, result.output
    assert result.stderr.startswith("error: ftp://nowhere.invalid/")
    assert fake.requests == []


def test_numbers_that_nothing_can_hold_cost_their_line_only(
    run: Run, fake: FakeService, tmp_path: Path
) -> None:
    """The others are answered."""
    wrong = [
        completion("temperature", temperature=10**400),
        completion("bias", logit_bias={"9" * 5000: 1}),
    ]
    source = write(tmp_path / "in.jsonl", *wrong, completion("good"))
    out = tmp_path / "out.jsonl"
    assert run("batch", str(source), str(out), "-a", fake.address).exit_code == 1
    errors = {name: line["error"] for name, line in by_name(read(out)).items()}
    assert errors.pop("good") is None
    assert {name: error["code"] for name, error in errors.items()} == dict.fromkeys(
        ("temperature", "bias"), "invalid_field"
    )


def test_half_a_character_in_a_name_is_written_as_its_number(
    run: Run, fake: FakeService, tmp_path: Path
) -> None:
    """A category is printed and written whatever it holds; the summary file does not depend on the terminal."""
    record = completion("a\ud800", metadata={"category": "odd \ud800 [/b]"})
    source = write(tmp_path / "in.jsonl", record)
    summary = tmp_path / "summary.json"
    command = ("batch", str(source), str(tmp_path / "out.jsonl"), "-a", fake.address)
    result = run(*command, "--summary", str(summary), "--baseline", "1")
    assert result.exit_code == 0, result.output
    assert "odd \\ud800 [/b]" in result.stdout
    assert list(json.loads(summary.read_text())["categories"]) == ["odd \ud800 [/b]"]


def test_nobody_answers(run: Run, source: Path, tmp_path: Path, closed_port: str) -> None:
    """Ends with 3, and no record has failed."""
    out = tmp_path / "out.jsonl"
    assert run("batch", str(source), str(out), "-a", closed_port).exit_code == 3
    assert not out.exists()


def test_parts_of_shards_are_not_run_again(
    run: Run, fake: FakeService, source: Path, tmp_path: Path
) -> None:
    """What a run with shards has left is theirs to finish."""
    (tmp_path / "out.jsonl.parts").mkdir()
    result = run("batch", str(source), str(tmp_path / "out.jsonl"), "-a", fake.address)
    assert result.exit_code == 2
    assert "--shards" in result.stderr
    assert fake.requests == []


def test_shards_without_a_cluster(
    run: Run, fake: FakeService, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Are refused before anything is sent, with what is needed."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    out = tmp_path / "out.jsonl"
    result = run("batch", str(source), str(out), "-a", fake.address, "--shards", "2")
    assert result.exit_code == 2
    assert "--shards needs" in result.stderr
    assert fake.requests == []
    assert not out.exists()


def test_baseline(run: Run, fake: FakeService, source: Path, tmp_path: Path) -> None:
    """A sample runs plainly too, and texts are compared; what plain decoding cannot repeat is left out."""
    with source.open("ab") as file:
        file.write(encode(completion("block", outrider={"verifier": "block"})) + b"\n")
        file.write(encode(completion("plain", outrider={"enabled": False})) + b"\n")
    out, summary = tmp_path / "out.jsonl", tmp_path / "summary.json"
    command = ("batch", str(source), str(out), "-a", fake.address, "--baseline", "10")
    result = run(*command, "--summary", str(summary))
    assert result.exit_code == 0, result.output
    assert "plain decoding of 3 of them: 3 texts equal" in result.stdout
    value = json.loads(summary.read_text())["baseline"]
    assert value["records"] == value["equal"] == 3
    assert value["speed_up"] > 0
    assert set(value["speed_up_by_category"]) == {"prose", "talk"}
    assert len(fake.requests) == 5 + 2 * 3


def test_baseline_that_differs(run: Run, fake: FakeService, source: Path, tmp_path: Path) -> None:
    """Ends with 1, and names the record."""
    lines = [json.loads(line) for line in source.read_text().splitlines()]
    for line in lines:
        line["body"]["outrider"] = {"enabled": True}
    write(source, *lines)
    fake.plain_differs = True
    out = tmp_path / "out.jsonl"
    result = run("batch", str(source), str(out), "-a", fake.address, "--baseline", "2")
    assert result.exit_code == 1
    assert "0 texts equal, 2 differ" in result.stdout


def test_from_store_to_store(run: Run, fake: FakeService, tmp_path: Path) -> None:
    """Reads its input from there too, has nothing to do the second time, and leaves one file."""
    fsspec = pytest.importorskip("fsspec")
    local = write(tmp_path / "in.jsonl", *(completion(f"r{number}") for number in range(9)))
    folder = f"memory://{uuid.uuid4().hex}"
    with fsspec.open(f"{folder}/in.jsonl", "wb") as file:
        file.write(local.read_bytes())
    memory = fsspec.filesystem("memory")
    for _ in range(2):
        result = run("batch", f"{folder}/in.jsonl", f"{folder}/out.jsonl", "-a", fake.address)
        assert result.exit_code == 0, result.output
        assert [path.rpartition("/")[2] for path in memory.find(folder)] == [
            "in.jsonl",
            "out.jsonl",
        ]
        with fsspec.open(f"{folder}/out.jsonl", "rb") as file:
            names = by_name([json.loads(line) for line in file])
        assert len(names) == 9
    assert len(fake.requests) == 9
    memory.rm(folder, recursive=True)
