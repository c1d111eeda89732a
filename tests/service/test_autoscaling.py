"""A service on a Ray cluster that adds nodes when they are asked for: under load a target and its node come, after it they go."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import yaml
from tests.service.conftest import save_tables
from tests.service.head import ray_head
from tests.service.processes import run, serving, start, until

from outrider.client import Client, SamplingOptions
from outrider.client.messages.service_info import Replicas

NUM_CLIENTS = 4

NUM_TOKENS = 100
"""Of a text: two seconds of passes."""
NODE = {"worker": {"resources": {"CPU": 1, "place": 1}, "node_config": {}, "max_workers": 3}}
"""Room for one target."""

WAIT_S = 400.0
"""For what takes ten seconds on an idle machine: a node, an actor, an end."""


def config(folder: Path) -> Path:
    """A table as a target of two slots, asleep in its passes, on nodes of its own, of which there may be two; prompt lookup where there is room."""
    table, _ = save_tables(folder)
    content = {
        "service": {"listen": "127.0.0.1:0"},
        "cluster": {"address": "auto", "placement_timeout_s": 200.0, "lease_s": 30.0},
        "targets": [
            {
                "name": "table",
                "model": f"tabular:{table}",
                "device": "emulated:20ms",
                "num_slots": 2,
                "max_replicas": 2,
                "resources": {"place": 1},
            }
        ],
        "drafters": [{"method": "prompt_lookup", "num_cpus": 0}],
        "autoscaling": {"interval_s": 0.5, "upscale_delay_s": 1.0, "downscale_delay_s": 4.0},
    }
    file = folder / "service.yaml"
    file.write_text(yaml.safe_dump(content))
    return file


def targets(client: Client) -> Replicas:
    """How many targets there are."""
    return next(one for one in client.status().replicas if one.role == "target")


def both_work(client: Client) -> bool:
    """Whether there are two targets with texts."""
    return sum(one.role == "target" and one.sessions > 0 for one in client.status().actors) == 2


def nodes(variables: dict[str, str]) -> int:
    """How many nodes the cluster has, the head too."""
    ask = (
        "import sys; from ray._raylet import GcsClient; "
        "print(sum(n.state == 0 for n in GcsClient(address=sys.argv[1]).get_all_node_info(timeout=5).values()))"
    )
    command = [sys.executable, "-c", ask, variables["RAY_ADDRESS"]]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
    return int(done.stdout)


def test_a_node_comes_with_the_load_and_goes_with_it(tmp_path: Path) -> None:
    """No text is cut or changed by it, and the reasons are told."""
    with ray_head(num_cpus=2, node_types=NODE) as head:
        variables = {name: value for name, value in head.variables.items() if "RAY_" in name}
        for name in ("RAY_CLOUD_INSTANCE_ID", "RAY_OVERRIDE_NODE_ID_FOR_TESTING"):
            variables.pop(name)
        service = start(tmp_path, ["-c", str(config(tmp_path))], **variables)
        with serving(service), Client(service.address, timeout_s=WAIT_S) as client:
            assert nodes(head.variables) == 2
            is_over = Event()
            texts: dict[int, set[tuple[int, ...]]] = {}

            def generate(seed: int) -> None:
                while not is_over.is_set():
                    options = SamplingOptions(seed=seed, max_tokens=NUM_TOKENS, ignore_eos=True)
                    (output,) = client.generate(tokens=[1, 2, 3], sampling=options).outputs
                    ids = tuple(token.id for token in output.tokens)
                    assert len(ids) == NUM_TOKENS
                    texts.setdefault(seed, set()).add(ids)

            with ThreadPoolExecutor(NUM_CLIENTS) as pool:
                running = [pool.submit(generate, seed) for seed in range(NUM_CLIENTS)]
                try:
                    until(lambda: targets(client).running == 2, timeout_s=WAIT_S, what="a target")
                    came = targets(client)
                    assert nodes(head.variables) == 3
                    until(lambda: both_work(client), timeout_s=WAIT_S, what="texts at both")
                finally:
                    is_over.set()
                for one in running:
                    one.result(WAIT_S)
            assert all(len(found) == 1 for found in texts.values()), "a text has changed"
            assert (came.wanted, came.least, came.most) == (2, 1, 2)
            assert "texts run" in came.reason
            until(lambda: targets(client).running == 1, timeout_s=WAIT_S, what="the target's end")
            # Asking takes a process.
            until(
                lambda: nodes(head.variables) == 2,
                timeout_s=WAIT_S,
                what="the node's end",
                poll_s=2.0,
            )
            shown = run("status", "--address", service.address)
            assert "target table: 1 of 1 to 2 replicas; at most" in shown.stdout
