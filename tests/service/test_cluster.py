"""A service over four Ray nodes, each on a host of its own: every message between them crosses links with delay.

All tests share one cluster, and none but the last, which takes a node away, changes what runs on it.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.service.processes import until

from bench.network.cluster_nodes import DRAFTERS, HEAD, TARGETS, Cluster, cluster
from bench.network.network import HERE, Unavailable
from bench.suites.service.batch_suite import killed_twice
from outrider.client import Client, SamplingOptions, SpeculationOptions

NUM_REQUESTS = 32


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The cluster, with half a millisecond each way between two nodes. One of the drafters asks targets for hidden states."""
    packages = tmp_path_factory.mktemp("packages")
    shutil.copy(Path(__file__).with_name("listening_drafter.py"), packages)
    info = packages / "listening-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: listening\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[outrider.drafters]\nlistening = listening_drafter:SPECS\n"
    )
    try:
        with cluster(
            delay_s=0.5e-3,
            bits_per_s=1e9,
            packages=packages,
            num_drafters=2,
            # Where two cores do everything, drafters would rest, and the wait for a candidate would be long.
            speculation={"adaptive": False},
            drafters=[{"method": "listening", "num_slots": 32}],
        ) as found:
            yield found
    except Unavailable as reason:
        pytest.skip(str(reason))


def hosts_of(made: Cluster, role: str) -> set[str]:
    """The addresses that actors of a role are reached at."""
    actors = made.ready["actors"]
    return {actor["address"].rpartition(":")[0] for actor in actors if actor["role"] == role}


def address(made: Cluster, name: str) -> str:
    """The address of a node."""
    return made.network.hosts[name].address


def test_each_role_is_where_it_belongs(made: Cluster) -> None:
    """Targets by their labels, one on each node; drafters on none of those; the coordinator where the service was started. Every
    address is the node's own."""
    assert hosts_of(made, "target") == {address(made, name) for name in TARGETS}
    assert hosts_of(made, "drafter") == {address(made, HEAD), address(made, DRAFTERS)}
    assert hosts_of(made, "coordinator") == {address(made, HEAD)}
    assert address(made, HERE) not in {
        actor["address"].rpartition(":")[0] for actor in made.ready["actors"]
    }


def test_many_requests_at_once_give_the_texts_of_plain_decoding(made: Cluster) -> None:
    """Over both targets and all drafters, with candidates from other machines accepted."""

    def text(seed: int, enabled: bool) -> tuple[tuple[int, ...], int]:
        result = client.generate(
            f"The history of number {seed} begins",
            sampling=SamplingOptions(seed=seed, max_tokens=24, temperature=0.8 * (seed % 2)),
            speculation=SpeculationOptions(enabled=enabled),
            timeout_s=240.0,
        )
        (output,) = result.outputs
        assert output.completion is not None
        accepted = output.completion.speculation.accepted
        return tuple(token.id for token in output.tokens), accepted

    with Client(made.address, timeout_s=240.0) as client, ThreadPoolExecutor(NUM_REQUESTS) as pool:
        seeds = range(NUM_REQUESTS)
        ours = list(pool.map(lambda seed: text(seed, True), seeds))
        plain = list(pool.map(lambda seed: text(seed, False), seeds))

        def accepts() -> bool:
            """Busy cores may bring all candidates too late."""
            found = [text(seed, True) for seed in range(4)]
            assert [tokens for tokens, _ in found] == [tokens for tokens, _ in plain[:4]]
            return sum(accepted for _, accepted in found) > 0

        if not sum(accepted for _, accepted in ours):
            until(accepts, timeout_s=240.0, what="a candidate that is accepted")
    assert [tokens for tokens, _ in ours] == [tokens for tokens, _ in plain]


def test_hidden_states_come_over_the_network(made: Cluster) -> None:
    """To the drafter that asked, on another node than any target: of more positions than one text of those compared above has."""

    def num_bytes() -> int:
        actors = client.status().actors
        return sum(one.feedback_bytes for one in actors if one.name.startswith("listening"))

    def came() -> bool:
        """A text may be over before the drafter has joined it, where the cores are busy."""
        client.generate("The history of states begins", sampling=SamplingOptions(max_tokens=96))
        return num_bytes() - before > 2 * 160 * 2 * 24

    with Client(made.address, timeout_s=60.0) as client:
        before = num_bytes()
        until(came, timeout_s=150.0, what="hidden states")


def test_status_names_every_actor(made: Cluster) -> None:
    """From outside the cluster, through the coordinator alone."""
    with Client(made.address, timeout_s=60.0) as client:
        actors = client.status().actors
    assert {actor.name for actor in actors} == {actor["name"] for actor in made.ready["actors"]}
    assert all(actor.ready for actor in actors)


def test_a_batch_outlives_its_process_and_a_node(made: Cluster, tmp_path: Path) -> None:
    """Killed once itself, and once with a node that held a target and sent: each record is answered once, by the one model.

    `python -m bench batch` does the same with 2,000 records, and compares texts. The last test: the node does not return.
    """
    found = killed_twice(made, tmp_path, count=50, num_plain=0)
    assert found["process_killed"]["answers"] < found["node_killed"]["answers"] < 50
    assert (found["lost"], found["duplicates"], found["failed"]) == (0, 0, 0)
    assert (found["fingerprints"], found["parts_left"]) == (1, False)
