"""From a profile's name to the profile."""

from __future__ import annotations

import json
import re
from functools import cache
from importlib import resources
from typing import Any

from outrider.actors.engine.profiles.profile import Device, Linear, Model, Profile, Roofline

DEVICE_PREFIX = "emulated:"
"""In front of a profile's name: a device."""

FOLDER = resources.files(__package__)

MAX_GPUS = 8
"""GPUs of one machine; the links between machines are others."""

GPU_COUNTS = (1, 2, 4, 8)

ROOM_SHARE = 0.9
"""Part of the memory that weights may take: the rest is for keys and values."""

_ROOFLINE = re.compile(r"(?P<device>[a-z0-9]+?)(?:x(?P<gpus>[1-9]))?-(?P<model>[0-9]+b)")
_TERM = re.compile(
    r"(?P<value>[0-9]+(?:\.[0-9]+)?)(?P<unit>ns|us|ms|s)(?:/(?P<per>row|session|1k))?"
)
_UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}

MAX_PASS_S = 60.0
"""Greatest figure of a free profile."""


def find_profile(name: str) -> Profile:
    """The profile of a name.

    Raises:
        ValueError: There is none; the message says which there are.
    """
    if name in _measured():
        return _measured()[name]
    if found := _ROOFLINE.fullmatch(name):
        return _roofline(name, found["device"], int(found["gpus"] or 1), found["model"])
    if "+" in name or _TERM.fullmatch(name):
        return _free(name)
    raise _unknown(name)


def draft_profile(name: str) -> str:
    """The profile of a drafter's device beside this target's: the smallest model on one such GPU, or what was measured.

    Raises:
        ValueError: It does not follow from the name.
    """
    if (measured := f"{name}-draft") in _measured():
        return measured
    found = _ROOFLINE.fullmatch(name)
    if found is None or found["device"] not in _devices():
        raise ValueError(f"{name!r} does not say what drafters run on; name both: {name},1ms+3us")
    return f"{found['device']}-{next(iter(_models()))}"


@cache
def known_profiles() -> tuple[str, ...]:
    """The names of all profiles but the free ones."""
    names = []
    for device in _devices().values():
        for model in _models().values():
            for gpus in GPU_COUNTS:
                if _fits(device, model, gpus):
                    names.append(_name(device, gpus, model))
    return (*names, *_measured())


def _name(device: Device, gpus: int, model: Model) -> str:
    return f"{device.name}-{model.name}" if gpus == 1 else f"{device.name}x{gpus}-{model.name}"


def _fits(device: Device, model: Model, gpus: int) -> bool:
    return model.weight_bytes <= ROOM_SHARE * gpus * device.memory_bytes


def _roofline(name: str, device_name: str, gpus: int, model_name: str) -> Roofline:
    device, model = _devices().get(device_name), _models().get(model_name)
    if device is None or model is None or not 1 <= gpus <= MAX_GPUS:
        raise _unknown(name)
    if not _fits(device, model, gpus):
        gib = model.weight_bytes / 2**30
        raise ValueError(
            f"profile {name!r}: {gib:.0f} GiB of weights have no room on {gpus} of {device.name} with "
            f"{device.memory_bytes / 2**30:.0f} GiB each; take more of them, for instance "
            + ", ".join(known for known in known_profiles() if known.endswith(f"-{model.name}"))
        )
    return Roofline(name=name, device=device, model=model, gpus=gpus)


def _free(name: str) -> Linear:
    figures = {"pass": 0.0, "row": 0.0, "session": 0.0, "1k": 0.0}
    for number, text in enumerate(name.split("+")):
        term = _TERM.fullmatch(text)
        if term is None or (number == 0 and term["per"] is not None):
            raise _unknown(name)
        per = "pass" if number == 0 else term["per"] or "row"
        figures[per] += float(term["value"]) * _UNITS[term["unit"]]
    if not 0.0 < figures["pass"] <= MAX_PASS_S or max(figures.values()) > MAX_PASS_S:
        raise ValueError(
            f"profile {name!r}: a pass must take more than 0 and no figure more than {MAX_PASS_S:.0f} seconds"
        )
    return Linear(
        name=name,
        origin="free: the figures are those of the name",
        pass_s=figures["pass"],
        row_s=figures["row"],
        session_s=figures["session"],
        context_s=figures["1k"] / 1000,
    )


def _unknown(name: str) -> ValueError:
    kinds = f"{', '.join(_devices())} with {', '.join(_models())}"
    return ValueError(
        f"there is no profile {name!r}; there are DEVICE-MODEL and DEVICExN-MODEL of {kinds} (h100-8b, h100x4-70b), "
        f"{''.join(f'{measured}, ' for measured in _measured())}"
        "and free ones such as 10ms+10us (a pass, and each row) or 10ms+10us+5us/session+20us/1k (each session, and "
        "1,000 rows of context)"
    )


@cache
def _devices() -> dict[str, Device]:
    return {data["name"]: Device(**data) for data in _files("devices")}


@cache
def _models() -> dict[str, Model]:
    found = {data["name"]: Model(**data) for data in _files("models")}
    return dict(sorted(found.items(), key=lambda item: item[1].parameters))


@cache
def _measured() -> dict[str, Linear]:
    return {data["name"]: Linear(**data) for data in _files("measured")}


def _files(folder: str) -> list[dict[str, Any]]:
    files = sorted(FOLDER.joinpath(folder).iterdir(), key=lambda file: file.name)
    return [json.loads(file.read_text("utf-8")) for file in files if file.name.endswith(".json")]
