"""What all sections of the configuration are made of."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
"""Pattern of the names of actors and namespaces."""

Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]
Amount = Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)]


class Section(BaseModel):
    """Keys that are not known are refused; never changed once read."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True
    )
