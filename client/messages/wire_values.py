"""The values by which `outrider.v1` knows the verifiers and the drafting policies."""

from __future__ import annotations

from outrider.client.messages.request_options import DraftLength, Roots, TreeMask, Verifier
from outrider.v1 import sampling_pb2

VERIFIER_BY_VALUE: dict[int, Verifier] = {
    sampling_pb2.Verifier.Value(f"VERIFIER_{verifier.name}"): verifier for verifier in Verifier
}
VALUE_BY_VERIFIER = {
    verifier: sampling_pb2.Verifier.Value(f"VERIFIER_{verifier.name}") for verifier in Verifier
}
VALUE_BY_LENGTH = {
    one: sampling_pb2.DraftLength.Value(f"DRAFT_LENGTH_{one.name}") for one in DraftLength
}
VALUE_BY_ROOTS = {one: sampling_pb2.Roots.Value(f"ROOTS_{one.name}") for one in Roots}
VALUE_BY_MASK = {one: sampling_pb2.TreeMask.Value(f"TREE_MASK_{one.name}") for one in TreeMask}
