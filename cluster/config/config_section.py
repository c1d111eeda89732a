"""What all sections of the configuration are made of."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    WithJsonSchema,
)
from pydantic_core import core_schema

from outrider.cluster.config.config_errors import shown

NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
"""Pattern of the names of actors and namespaces."""

Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]


def _switched(value: Any) -> Any:
    """YAML reads `on` and `off` as truths, unless they are in quotes."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return value


Switch = Annotated[
    Literal["auto", "on", "off"],
    BeforeValidator(_switched),
    WithJsonSchema({"enum": ["auto", "on", "off", True, False]}),
]
"""`auto`, `on` or `off`."""


class Section(BaseModel):
    """Keys that are not known are refused, and numbers that are not finite; never changed once read."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        use_attribute_docstrings=True,
        allow_inf_nan=False,
    )


@dataclass(frozen=True, slots=True)
class AutoOr:
    """Takes `auto` and whole numbers in a range, and says so in one sentence where a union would say it once for each of its types."""

    least: int
    most: int

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.no_info_before_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {
            "anyOf": [
                {"type": "integer", "minimum": self.least, "maximum": self.most},
                {"const": "auto", "type": "string"},
            ]
        }

    def _check(self, value: Any) -> Any:
        is_number = isinstance(value, int) and not isinstance(value, bool)
        if value != "auto" and not (is_number and self.least <= value <= self.most):
            raise ValueError(
                f"must be auto or a whole number from {self.least} to {self.most}, but is {value!r}"
            )
        return value


def _is_scalar(value: Any) -> Any:
    """Says in one sentence what a union would say once for each of its types."""
    is_scalar = isinstance(value, (bool, int, float, str))
    if not is_scalar or (isinstance(value, float) and not math.isfinite(value)):
        raise ValueError(f"must be text, a finite number, true or false, but is {shown(value)}")
    return value


Scalar = Annotated[bool | int | float | str, BeforeValidator(_is_scalar)]
"""A text, a finite number or a truth."""
