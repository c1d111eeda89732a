"""What actors ask of Ray: amounts, and the names of custom resources. Ray itself would refuse them once it runs."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

STEP = 0.0001
"""Least difference of amounts that Ray knows."""

OWN = {
    "CPU": "num_cpus",
    "GPU": "num_gpus",
    "memory": "another name",
    "object_store_memory": "another name",
}
"""Names that Ray keeps for itself, and what to write in their place."""


def _in_steps(amount: float) -> float:
    if abs(amount - round(amount, 4)) > 1e-9:
        raise ValueError(f"is {amount!r}; Ray counts in steps of {STEP}")
    return amount


def _whole_or_part(gpus: float) -> float:
    if gpus > 1 and gpus != int(gpus):
        raise ValueError(f"is {gpus!r}; more than one GPU must be a whole number")
    return gpus


def _custom(resources: dict[str, float]) -> dict[str, float]:
    for name in resources:
        if name in OWN:
            raise ValueError(f"has {name!r}, which is a resource of Ray's own; write {OWN[name]}")
        if not name.strip():
            raise ValueError("has a resource without a name")
    return resources


Amount = Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False), AfterValidator(_in_steps)]
Gpus = Annotated[Amount, AfterValidator(_whole_or_part)]
Resources = Annotated[dict[str, Amount], AfterValidator(_custom)]
