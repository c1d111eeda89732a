"""The error tree: which status becomes which error, and what travels with it."""

from __future__ import annotations

import pickle

import grpc
import pytest

from outrider.client.connection import errors


def leaves() -> set[type[errors.OutriderError]]:
    """Every error below the root."""
    return set(errors.OutriderError.__subclasses__())


def test_each_status_but_ok_has_an_error() -> None:
    """The table is total over gRPC's codes."""
    assert set(grpc.StatusCode) - {grpc.StatusCode.OK} == set(errors.ERROR_BY_CODE)


def test_each_error_stands_for_a_status() -> None:
    """No error in the tree is beyond the table, but for the one that a status and a field make."""
    assert leaves() == {*errors.ERROR_BY_CODE.values(), errors.ModelExchanged}


def test_the_tree_is_drawn_in_full() -> None:
    """The module's drawing names each error."""
    assert errors.__doc__ is not None
    assert all(f"── {leaf.__name__} " in errors.__doc__ for leaf in leaves())


@pytest.mark.parametrize("kind", sorted(leaves(), key=str))
def test_errors_survive_pickling(kind: type[errors.OutriderError]) -> None:
    """What an error knows crosses a process."""
    error = kind(
        "broken",
        code=grpc.StatusCode.UNAVAILABLE,
        request_id="r-1",
        retry_after_s=1.5,
        field="sampling.top_p",
        received_tokens=(1, 2),
    )
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert str(again) == "broken"
    assert vars(again) == vars(error)


class OversizeError(grpc.RpcError):
    """What gRPC raises for a message beyond the limit."""

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.RESOURCE_EXHAUSTED

    def details(self) -> str:
        return "SERVER: Received message larger than max (5242912 vs. 4194304)"

    def trailing_metadata(self) -> tuple[()]:
        return ()


class BrokenDetailsError(OversizeError):
    """A status whose rich details are not a message."""

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.ABORTED

    def trailing_metadata(self) -> tuple[tuple[str, bytes], ...]:  # type: ignore[override]
        return (("grpc-status-details-bin", b"\xff\xff"),)


def test_oversize_is_the_requests_fault() -> None:
    """gRPC's status for a message that is too large is that of an overload, but waiting cannot help."""
    assert type(errors.from_rpc_error(OversizeError())) is errors.InvalidRequest


def test_unreadable_details_do_not_hide_the_status() -> None:
    """The error stands without its details."""
    error = errors.from_rpc_error(BrokenDetailsError(), request_id="r-1")
    assert type(error) is errors.Cancelled
    assert (error.field, error.retry_after_s, error.request_id) == (None, None, "r-1")
