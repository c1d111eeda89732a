"""The end of a service that has been through all that the other tests of this folder do to it."""

from __future__ import annotations

import grpc
from tests.service.processes import END_TIMEOUT_S, ServiceProcess, ray_folder, still_running, until
from tests.service.shared.test_serving import RECOVERY_S, request, wait_for_drafters

from outrider.v1 import generation_pb2_grpc


def test_termination_ends_everything(service: ServiceProcess) -> None:
    """While a request runs: exit code 0, and no process, no ready file and no temporary folder stays."""
    with grpc.insecure_channel(service.address) as channel:
        stub = generation_pb2_grpc.GenerationServiceStub(channel)
        wait_for_drafters(stub, "near")
        stream = stub.Generate(request(enabled=True, max_tokens=4000), timeout=RECOVERY_S)
        next(stream)
        family = service.family()
        folder = ray_folder(family)
        assert service.end() == 0
        stream.cancel()

    until(
        lambda: not still_running(family), timeout_s=END_TIMEOUT_S, what="the end of every process"
    )
    assert not folder.exists()
    assert not (service.folder / "ready").exists()
