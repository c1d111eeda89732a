"""Where files lie: on this machine, or at a place that fsspec reaches (`s3://`, `gs://`, `memory://`, ...)."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from outrider.client.connection.errors import InvalidRequest, OutriderError

_LOCAL = "file://"


def is_remote(place: str) -> bool:
    """True for a URL of another scheme than `file`."""
    return "://" in place and not place.startswith(_LOCAL)


def local_path(place: str) -> Path:
    """The path of a local file."""
    return Path(place.removeprefix(_LOCAL))


def remote(place: str) -> tuple[Any, str]:
    """The file system of a URL, and the path in it.

    Raises:
        InvalidRequest: fsspec, or its part for this scheme, is not installed, or knows no such scheme.
        OutriderError: The store cannot be connected to.
    """
    try:
        core = importlib.import_module("fsspec.core")
        filesystem, path = core.url_to_fs(place)
    except ImportError as error:
        raise InvalidRequest(
            f"{place} needs more than is installed ({error}); pip install 'outrider[batch]', "
            "and for s3:// or gs:// s3fs or gcsfs"
        ) from None
    except ValueError as error:
        raise InvalidRequest(f"{place} cannot be reached: {error}") from None
    except Exception as error:  # some stores are connected to at once
        raise OutriderError(f"{place}: {type(error).__name__}: {error}") from error
    return filesystem, path


@contextmanager
def remote_errors(place: str) -> Iterator[None]:
    """Names the place in whatever goes wrong there: each kind of store raises errors of its own.

    Raises:
        OutriderError: Something did.
    """
    try:
        yield
    except OutriderError:
        raise
    except Exception as error:
        raise OutriderError(f"{place}: {type(error).__name__}: {error}") from error
