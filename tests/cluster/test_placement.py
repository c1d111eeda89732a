"""What is said when a cluster has no room."""

from __future__ import annotations

from outrider.cluster.config import parse_config
from outrider.cluster.fleet import ActorSpec, fleet
from outrider.cluster.placement import NodeRoom, bundle_indices, shortage


def specs(**target: object) -> tuple[ActorSpec, ...]:
    """A target with these keys, a drafter on one CPU, and the coordinator."""
    config = {"targets": [{"model": "t", **target}], "drafters": [{"model": "d"}]}
    return fleet(parse_config(config, source="test"))


def node(**resources: float) -> NodeRoom:
    """A node that has these."""
    return NodeRoom(node_id="n", host="10.0.0.1", resources=resources)


def test_enough_room_is_no_shortage() -> None:
    """Nothing stands against it, so nothing is said."""
    assert shortage(specs(), [node(CPU=1), node(CPU=1)]) is None


def test_missing_custom_resource_is_named_with_who_needs_it() -> None:
    """The commonest mistake: the nodes were started without it."""
    text = shortage(specs(resources={"target_node": 1}), [node(CPU=8)])

    assert text is not None
    assert "'t' needs 1 target_node, and no node has any" in text


def test_too_small_nodes_are_named_with_the_most_that_one_has() -> None:
    """Two nodes with one GPU do not make one with two."""
    text = shortage(specs(device="cuda", num_gpus=2), [node(CPU=8, GPU=1), node(CPU=8, GPU=1)])

    assert text is not None
    assert "needs 2 GPU, and the most that a node has is 1" in text


def test_resources_that_no_node_has_together() -> None:
    """Each resource is somewhere, but not on one node."""
    text = shortage(specs(resources={"a": 1, "b": 1}), [node(CPU=8, a=1), node(CPU=8, b=1)])

    assert text == "no single node has all that 't' asks for: 1 CPU, 1 a, 1 b"


def test_sum_over_all_actors_counts() -> None:
    """Each fits alone, all together do not."""
    text = shortage(specs(num_cpus=1.5), [node(CPU=2)])

    assert text == "the actors need 2.5 CPU together (t, d), and the cluster has 2"


def test_only_actors_with_needs_get_bundles() -> None:
    """Ray refuses an empty bundle; the coordinator runs anywhere."""
    assert bundle_indices(specs(num_cpus=0)) == {"d": 0}
