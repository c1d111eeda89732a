"""Where actors go, and what is said when a cluster has no room."""

from __future__ import annotations

from dataclasses import replace

import pytest

from outrider.cluster.config.node_labels import NODE_ID, matches
from outrider.cluster.config.schema import parse_config
from outrider.cluster.placement.actor_specs import ActorSpec, actor_specs
from outrider.cluster.placement.placement import (
    NodeRoom,
    PlacementPolicy,
    Tenant,
    ranked,
    selectors,
    shortage,
)
from outrider.cluster.roster.roster import Role


def specs(**target: object) -> tuple[ActorSpec, ...]:
    """A target with these keys, a drafter on one CPU, and the coordinator."""
    config = {"targets": [{"model": "t", **target}], "drafters": [{"model": "d"}]}
    return actor_specs(parse_config(config, source="test"))


def node(**resources: float) -> NodeRoom:
    """A node that has these."""
    return NodeRoom(node_id="n", address=("10.0.0.1", 1), resources=resources)


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


def test_missing_labels_are_named_with_those_that_are_there() -> None:
    """A value that no node has, and a key that no node has."""
    h100 = specs(node_labels={"gpu": "h100"})
    nodes = [labelled("a", gpu="a100"), labelled("b", gpu="l4")]
    assert shortage(h100, nodes) == (
        "'t' asks for a node with gpu=h100, and nodes have gpu=a100, gpu=l4"
    )
    assert "no node has such labels" in (shortage(h100, [labelled("a")]) or "")
    assert shortage(h100, [labelled("a", gpu="h100")]) is None


def test_room_counts_on_nodes_with_the_labels_only() -> None:
    """Elsewhere there would be enough."""
    wanted = specs(node_labels={"gpu": "h100"}, num_cpus=16)
    text = shortage(wanted, [labelled("a", gpu="h100"), node(CPU=64)])
    assert "the most that a node with its labels has is 8" in (text or "")


# -- choosing ------------------------------------------------------------------------------------------------------


def labelled(name: str, cpus: float = 8, **labels: str) -> NodeRoom:
    """A node with labels."""
    return NodeRoom(node_id=name, address=(name, 1), resources={"CPU": cpus}, labels=labels)


def on(spec: ActorSpec, node_id: str) -> Tenant:
    """An actor that runs already."""
    return Tenant(role=spec.role, model=spec.model, node_id=node_id, resources=spec.resources)


TARGET, DRAFTER, COORDINATOR = specs()
NODES = [labelled(name) for name in "abcd"]


def best(
    spec: ActorSpec,
    tenants: list[Tenant],
    nodes: list[NodeRoom] = NODES,
    round_trips: dict[tuple[str, str], float] | None = None,
    **policy: str,
) -> list[str]:
    """The nodes for an actor."""
    rules = PlacementPolicy(**policy)  # type: ignore[arg-type]  # the literals of its fields
    return ranked(spec, nodes, tenants, rules, round_trips=round_trips or {}, own_node="a")


def test_replicas_are_spread_or_packed() -> None:
    """Over nodes without one, or onto nodes with one."""
    tenants = [on(TARGET, "a"), on(TARGET, "b")]
    assert best(TARGET, tenants)[:2] == ["c", "d"]
    assert best(TARGET, tenants, replicas="pack")[:2] == ["a", "b"]


def test_drafters_keep_off_target_nodes() -> None:
    """Last of all with `auto`, not at all with `never`, as anywhere with `always`."""
    tenants = [on(TARGET, "a"), on(TARGET, "b")]
    assert set(best(DRAFTER, tenants)[:2]) == {"c", "d"}
    assert len(best(DRAFTER, tenants)) == 4
    assert set(best(DRAFTER, tenants, drafters_on_targets="never")) == {"c", "d"}
    near = best(DRAFTER, tenants, drafters_on_targets="always")
    assert set(near[:2]) == {"a", "b"}, "a drafter beside its target has no way to go"


def test_the_nearest_node_wins_over_the_emptiest() -> None:
    """By the round trip to the nearest target, if it differs by more than noise; then by how many drafters are there."""
    tenants = [on(TARGET, "a"), on(DRAFTER, "c")]
    far = {("b", "a"): 20e-3, ("c", "a"): 300e-6, ("d", "a"): 320e-6}
    assert best(DRAFTER, tenants, round_trips=far)[:3] == ["d", "c", "b"]
    close = {**far, ("c", "a"): 60e-6}
    assert best(DRAFTER, tenants, round_trips=close)[:3] == ["c", "d", "b"]
    for nearest in (60e-6, 1.1e-3, 1.13e-3, 1.2e-3, 17e-3):
        # Whatever the time, less than twice as long is as near.
        for longer, first in ((1.01, "d"), (1.9, "d"), (2.1, "c")):
            trips = {("b", "a"): 1.0, ("c", "a"): nearest, ("d", "a"): longer * nearest}
            assert best(DRAFTER, tenants, round_trips=trips)[0] == first


def test_unmeasured_nodes_come_last() -> None:
    """As far as the farthest: where that decides nothing, the emptier node does."""
    trips = {("b", "a"): 300e-6, ("c", "a"): 20e-3}
    assert best(DRAFTER, [on(TARGET, "a")], round_trips=trips)[:3] == ["b", "c", "d"]
    crowded = [on(TARGET, "a"), on(DRAFTER, "c"), on(DRAFTER, "b")]
    assert best(DRAFTER, crowded, round_trips=dict.fromkeys(trips, 20e-3))[0] == "d"


def test_full_nodes_and_wrong_labels_are_left_out() -> None:
    """Our own actors hold what they asked for; Ray knows of others'."""
    nodes = [labelled("a", cpus=1), labelled("b", zone="x"), labelled("c", zone="y")]
    zoned = specs(node_labels={"zone": "in(x,z)"})[0]
    assert best(zoned, [], nodes) == ["b"]
    assert "a" not in best(TARGET, [on(TARGET, "a")], nodes)


def test_the_first_coordinator_stays_where_it_is_looked_for() -> None:
    """Further ones go elsewhere."""
    assert best(COORDINATOR, [])[0] == "a"
    assert best(COORDINATOR, [on(COORDINATOR, "a")])[0] != "a"


def test_ray_may_take_another_node_if_the_best_is_full() -> None:
    """By id as far as they are known, then any with the labels, so that a cluster that grows knows what is wanted."""
    spec = specs(node_labels={"zone": "x"})[0]
    asked = selectors(spec, ["b", "c"], {"a"}, PlacementPolicy())
    assert asked == [
        {"zone": "x", NODE_ID: "b"},
        {"zone": "x", NODE_ID: "c"},
        {"zone": "x"},
    ]
    never = selectors(DRAFTER, [], {"a", "b"}, PlacementPolicy(drafters_on_targets="never"))
    assert never == [{NODE_ID: "!in(a,b)"}]


def test_drafters_that_may_not_share_need_a_second_node() -> None:
    """Said before anything starts."""
    policy = PlacementPolicy(drafters_on_targets="never")
    assert "drafters_on_targets" in (shortage(specs(), [node(CPU=8)], policy) or "")
    assert shortage(specs(), [node(CPU=8), node(CPU=8)], policy) is None


def test_drafters_for_whom_targets_leave_no_node() -> None:
    """The setting is named, not the work of others; a node without a target, or with room where targets are taken, is enough."""
    nodes, tenants = NODES[:2], [on(TARGET, "a"), on(TARGET, "b")]
    never = PlacementPolicy(drafters_on_targets="never")
    text = shortage((DRAFTER,), nodes, never, tenants) or ""
    assert (
        "every node that 'd' could run on holds a target (cluster.drafters_on_targets: never)"
        in text
    )
    assert shortage((DRAFTER,), nodes, never, tenants[:1]) is None
    assert shortage((DRAFTER,), nodes, PlacementPolicy(), tenants) is None
    assert shortage((TARGET,), nodes, never, tenants) is None
    kept = replace(DRAFTER, node_labels={"zone": "x"})
    assert shortage((kept,), [labelled("a", zone="x"), labelled("b")], never, [on(TARGET, "a")])


@pytest.mark.parametrize(
    ("wanted", "value", "fits"),
    [
        ("x", "x", True),
        ("x", "y", False),
        ("x", None, False),
        ("!x", "y", True),
        ("!x", "x", False),
        ("!x", None, True),
        ("in(x, y)", "y", True),
        ("in(x,y)", "z", False),
        ("!in(x,y)", "z", True),
        ("!in(x,y)", "x", False),
    ],
)
def test_labels_are_matched_as_ray_does(wanted: str, value: str | None, fits: bool) -> None:
    """Equal, not equal, one of, none of."""
    assert matches({"k": wanted}, {} if value is None else {"k": value}) is fits


def test_role_of_tenants_decides() -> None:
    """A drafter's node is no target's."""
    assert best(DRAFTER, [on(DRAFTER, "a")])[0] != "a"
    assert on(TARGET, "a").role is Role.TARGET
