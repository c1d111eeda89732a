"""The command line, one file a command. Imports neither torch nor Ray before a serving command asks for them."""

from outrider.client.cli.app import main

__all__ = ["main"]
