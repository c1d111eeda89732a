"""A reader of arguments that raises, as that of the command line does."""

from __future__ import annotations

import argparse
from typing import NoReturn


class Parser(argparse.ArgumentParser):
    """Refuses by an exception."""

    def error(self, message: str) -> NoReturn:
        """Refuses."""
        raise ValueError(message)
