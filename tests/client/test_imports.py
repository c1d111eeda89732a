"""The client stands alone."""

from __future__ import annotations

import os
import subprocess
import sys

BLOCKED = ("torch", "ray", "numpy", "pydantic", "transformers", "msgpack", "yaml", "structlog")

SCRIPT = f"""
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {BLOCKED}:
            raise ModuleNotFoundError(f"{{name}} is blocked", name=name)
        return None

sys.meta_path.insert(0, Refuse())
import outrider.client
import outrider.client.cli
assert not any(name.split(".")[0] in {BLOCKED} for name in sys.modules)
assert not any(name.startswith(("outrider.actors", "outrider.cluster")) for name in sys.modules)
print("alone")
"""


def run(script: str) -> subprocess.CompletedProcess[str]:
    """Runs it in a process of its own, which finds what this one finds."""
    return subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def test_client_and_command_line_import_without_the_serving_packages() -> None:
    """Neither Ray, torch nor anything else of `outrider[serve]` is needed."""
    done = run(SCRIPT)
    assert (done.returncode, done.stdout) == (0, "alone\n"), done.stderr


HELP = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"{name} is blocked", name=name)
        return None

sys.meta_path.insert(0, Refuse())
from outrider.client.cli import main
sys.argv = ["outrider", "train", "--help"]
main()
"""


def test_help_on_training_without_the_serving_packages() -> None:
    """It is help, as of other commands, and says what the trainers need."""
    done = run("BLOCKED = ('yaml',)" + HELP)
    assert done.returncode == 0, done.stderr
    assert "Train models." in done.stdout
    assert "pip install 'outrider[serve]'" in done.stderr


def test_help_on_training_imports_nothing_that_takes_seconds() -> None:
    """The trainers are listed by what they say of themselves."""
    done = run("BLOCKED = ('torch', 'transformers', 'ray')" + HELP)
    assert (done.returncode, done.stderr) == (0, "")
    assert "diffusion" in done.stdout
