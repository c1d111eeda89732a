"""Mutation testing: does a test notice each small error that can be made in what decides about tokens?

`python -m tests.mutants [PATTERN ...]` makes mutants of the files named in `[tool.mutmut]` (pyproject.toml), runs for each the tests that
reach it, and fails where a mutant survives that `equivalent.toml` does not list, or where that file lists one that does not survive. A
pattern keeps to the mutants whose names it matches (`'outrider.actors.speculation.verify.*'`) and judges those again; without one, those
are judged that were not yet, or that survived.

mutmut follows no links, so it works on a copy, `.mutants`, in which `src/outrider/actors` is a folder. Its verdicts stay there: a run
that was stopped goes on. To judge everything again, remove the folder.
"""

from __future__ import annotations

import fnmatch
import importlib
import importlib.util
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Sequence
from difflib import SequenceMatcher
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
WORK = ROOT / ".mutants"
VERDICTS = WORK / "mutants/src"
LISTED = Path(__file__).with_name("equivalent.toml")

KINDS = {37: "types", 1: "killed", 3: "killed", **dict.fromkeys((36, -24, 24, 152, 255), "slow")}
"""Exit codes as mutmut records them: by the type checker, by a test, by the limit of time. All others are survivors."""


MOST_BYTES = 8 * 2**30
"""Address space of a test run, which needs two: a mutant that asks for more fails, and does not take the machine's memory."""


def lay_copy() -> None:
    """Bring the copy up to date. mutmut's own copy of the sources stays, for it knows by their times what it has done."""
    for old in (WORK / "src", WORK / "tests", WORK / "bench", WORK / "mutants/tests"):
        shutil.rmtree(old, ignore_errors=True)
    for name in ("src", "tests", "bench"):
        shutil.copytree(
            ROOT / name, WORK / name, ignore=shutil.ignore_patterns("__pycache__", "out")
        )
    shutil.copy2(ROOT / "pyproject.toml", WORK)


def change(before: Sequence[str], after: Sequence[str]) -> str:
    """A mutant in one line: the lines that differ, with what was and what is between braces."""
    was, now = (" ".join(line.strip() for line in lines) for lines in (before, after))
    old, new = (re.findall(r"\w+|\W", text) for text in (was, now))
    blocks = SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    differing = [block for block in blocks if block[0] != "equal"]
    (_, a, _, c, _), (_, _, b, _, d) = differing[0], differing[-1]
    changed = f"{{{''.join(old[a:b])} => {''.join(new[c:d])}}}"
    return "".join(old[:a]) + changed + "".join(old[b:])


def told(kept: Path, name: str) -> tuple[str, str]:
    """A mutant as `equivalent.toml` lists it: the file, and a line with function and change."""
    differ = importlib.import_module("mutmut.mutation.diff_apply")  # reads below the working folder
    file = kept.relative_to(WORK / "mutants").with_suffix("")
    lines = differ.get_diff_for_mutant(name, path=file).splitlines()[2:]
    before, after = ([line[1:] for line in lines if line[0] == sign] for sign in "-+")
    function = re.split("[.ǁ]", name.partition("__mutmut_")[0])[-1].removeprefix("x_")
    return str(file.relative_to("src/outrider")), f"{function}: {change(before, after)}"


def judge(listed: set[tuple[str, str]], patterns: Sequence[str]) -> bool:
    """Print the figures by file and whatever is wrong; tells whether nothing is.

    Survivors that are not listed are forgotten, so that the next run judges them again: a test may have been written.
    """
    figures, surviving = dict[str, Counter[str]](), set[tuple[str, str]]()
    for kept in sorted(VERDICTS.rglob("*.meta")):
        if "__mutmut_" not in kept.with_suffix("").read_text():
            continue  # The configuration no longer names it.
        file = str(kept.relative_to(VERDICTS / "outrider").with_suffix(""))
        verdicts = json.loads(kept.read_text())
        codes = verdicts["exit_code_by_key"]
        for name, code in codes.items():
            if patterns and not any(fnmatch.fnmatch(name, pattern) for pattern in patterns):
                continue
            kind = KINDS.get(code) or ("listed" if told(kept, name) in listed else "left")
            figures.setdefault(file, Counter()).update(("mutants", kind))
            surviving |= set() if code in KINDS else {told(kept, name)}
            if kind == "left":
                print(f"survives ({code}): {name}\n  {file}\n  {told(kept, name)[1]}")
                codes[name] = None
        kept.write_text(json.dumps(verdicts))
    columns = ("mutants", "types", "killed", "slow", "listed", "left")
    print("".join(f"{column:>9}" for column in columns))
    for file, count in [*figures.items(), ("in all", sum(figures.values(), Counter()))]:
        print("".join(f"{count[column]:9}" for column in columns), "", file)
    stale = set() if patterns else listed - surviving
    for file, line in sorted(stale):
        print(f"listed, but does not survive: {file}: {line}")
    return not stale and not any(count["left"] for count in figures.values())


def main(patterns: Sequence[str]) -> int:
    """Make, run and judge; the exit code."""
    if importlib.util.find_spec("mutmut") is None:
        print("mutmut is missing: pip install -e '.[serve,dev,mutants]'")
        return 2
    entries = tomllib.loads(LISTED.read_text())["equivalent"]
    listed = {(entry["file"], line) for entry in entries for line in entry["mutants"]}
    lay_copy()
    os.chdir(WORK)
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    command = [sys.executable, "-m", "mutmut", "run", "--max-children", "1", *patterns]
    # The type checker is called as `python`: that of this environment.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    if code := subprocess.run(command, check=False, env={**os.environ, "PATH": path}).returncode:
        return code
    return 0 if judge(listed, patterns) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
