"""A whole service with certificates on every port and tokens on the public one: started, used, changed, its certificates exchanged."""

from __future__ import annotations

import json
import os
import signal
import urllib.request
from pathlib import Path

import grpc
import pytest
import yaml
from tests.certificates import Authority
from tests.service.conftest import write_config
from tests.service.processes import START_TIMEOUT_S, ServiceProcess, run, serving, start, until

from outrider.client import Client, OutriderError, SamplingOptions, Tls
from outrider.v1 import target_pb2, target_pb2_grpc

TOKEN = "a-token-that-no-log-shows"
RESTARTED = ("table", "prompt_lookup")
"""Target and drafter."""


def up(service: ServiceProcess) -> dict[str, float]:
    """Which actors the metrics page hears, by name."""
    url = f"http://{service.ready['metrics']}/metrics"
    page = urllib.request.urlopen(url, timeout=20.0).read().decode()
    rows = [line for line in page.splitlines() if line.startswith("outrider_up{")]
    return {
        row.partition('actor="')[2].partition('"')[0]: float(row.rpartition(" ")[2]) for row in rows
    }


def test_certificates_and_tokens_in_all_of_a_service(tmp_path: Path) -> None:
    """Every stream between actors is by TLS; strangers and those without it are refused; new certificates need no restart."""
    outside, inside = Authority(tmp_path, "outside"), Authority(tmp_path, "inside")
    server, actor = outside.issue("server", "127.0.0.1"), inside.issue("actor", "outrider.internal")
    tokens = tmp_path / "tokens"
    tokens.write_text(f"{TOKEN}\n")
    file = write_config(tmp_path)
    config = yaml.safe_load(file.read_text()) | {
        "drafters": [{"method": "prompt_lookup", "num_slots": 4}],
        "security": {
            "public": {"cert": str(server.cert), "key": str(server.key), "tokens": str(tokens)},
            "internal": {"cert": str(actor.cert), "key": str(actor.key), "ca": str(inside.ca)},
        },
    }
    file.write_text(yaml.safe_dump(config))
    admin = tmp_path / "admin"
    service = start(
        tmp_path, ["--config", str(file), "--log-level", "debug", "--admin-file", str(admin)]
    )
    with serving(service):
        where = ("--address", service.address, "--tls-ca", str(outside.ca))
        told = run("status", *where, "--token-file", str(tokens))
        assert told.returncode == 0, told.stderr
        assert "asks for a token" in run("status", *where).stderr
        plain = run("status", "--address", service.address)
        assert "speaks TLS" in plain.stderr
        assert set(up(service).values()) == {1.0}

        # The secret alone opens no internal port.
        target = next(a["address"] for a in service.ready["actors"] if a["name"] == "table")
        secret = json.loads(admin.read_text())["secret"]
        with grpc.insecure_channel(target) as channel, pytest.raises(grpc.RpcError) as refused:
            target_pb2_grpc.TargetServiceStub(channel).GetInfo(
                target_pb2.GetTargetInfoRequest(),
                metadata=(("outrider-secret", secret),),
                timeout=10.0,
            )
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE

        applied = run("apply", str(file), "--admin-file", str(admin), "--dry-run")
        assert applied.returncode == 0, applied.stderr
        assert "nothing to change" in applied.stderr
        file.write_text(yaml.safe_dump({**config, "security": {}}))
        applied = run("apply", str(file), "--admin-file", str(admin))
        assert applied.returncode == 1
        assert "security" in applied.stderr

        sampling = SamplingOptions(seed=3, max_tokens=60, ignore_eos=True)
        with Client(service.address, tls=Tls(ca=outside.ca), token=TOKEN) as client:
            before = client.generate(tokens=[1, 2, 3], sampling=sampling).outputs[0]
            for authority, pair in ((outside, server), (inside, actor)):
                authority.issue("new", *(("127.0.0.1",) if pair is server else ()), over=pair)
            # What starts now has the new certificates, and reaches those that began with the old ones.
            for name in RESTARTED:
                os.kill(service.pid_of(name), signal.SIGKILL)

            def is_whole() -> bool:
                try:
                    actors = client.status().actors
                except OutriderError:
                    return False
                pids = {each.name: each.pid for each in actors if each.ready}
                return all(pids.get(name) not in (None, service.pid_of(name)) for name in RESTARTED)

            until(is_whole, timeout_s=START_TIMEOUT_S, what="both actors' new starts")
            after = client.generate(tokens=[1, 2, 3], sampling=sampling).outputs[0]
            assert [token.id for token in after.tokens] == [token.id for token in before.tokens]
            until(
                lambda: set(up(service).values()) == {1.0},
                timeout_s=START_TIMEOUT_S,
                what="metrics of all",
            )
        assert "new certificate not used" not in service.log
    assert TOKEN not in service.log
    assert secret not in service.log


def test_certificates_that_cannot_be_used_are_told_before_anything_starts(tmp_path: Path) -> None:
    """With the reason, and within a moment."""
    authority = Authority(tmp_path)
    late = authority.issue("late", valid_days=-1.0)
    file = tmp_path / "service.yaml"
    internal = {"cert": str(late.cert), "key": str(late.key), "ca": str(authority.ca)}
    file.write_text(yaml.safe_dump({"security": {"internal": internal}}))
    refused = run("serve", "--config", str(file), "--listen", "127.0.0.1:0")
    assert refused.returncode == 1
    assert "certificate has expired" in refused.stderr
    file.write_text(yaml.safe_dump({"security": {"public": {"tokens": str(tmp_path / "none")}}}))
    refused = run("serve", "--config", str(file), "--listen", "127.0.0.1:0")
    assert refused.returncode == 1
    assert "cannot read the tokens" in refused.stderr
