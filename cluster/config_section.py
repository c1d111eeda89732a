"""What all sections of the configuration are made of."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
"""Pattern of the names of actors and namespaces."""

Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]
Amount = Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)]


class Section(BaseModel):
    """Keys that are not known are refused; never changed once read."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True
    )


def auto_or(least: int, most: int) -> BeforeValidator:
    """Takes `auto` and whole numbers in a range, and says so in one sentence where a union would say it once for each of its types."""

    def check(value: Any) -> Any:
        is_number = isinstance(value, int) and not isinstance(value, bool)
        if value != "auto" and not (is_number and least <= value <= most):
            raise ValueError(
                f"must be auto or a whole number from {least} to {most}, but is {value!r}"
            )
        return value

    return BeforeValidator(check)
