"""`outrider train decision`: the model that says when drafting stops, put beside the draft model's weights."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from outrider.actors.train.trainer_spec import TrainerNeed, TrainerSpec, TrainResult


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionOptions:
    """Of `outrider train decision`."""

    data: Path
    """Folder of the training texts."""

    target: Path | None = None
    """Target model, in place of the shipped one."""

    drafts: tuple[Path, ...] = field(default=(), metadata={"flags": ("--draft",)})
    """Draft model, in place of the shipped ones; gets the result. Repeatable."""

    texts: int = 240
    """Texts that the target writes to learn from, at least 12."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where the arithmetic is done."""


def run(options: DecisionOptions) -> TrainResult:
    """See `TrainerSpec.run`."""
    from dataclasses import asdict

    from outrider.actors import demo
    from outrider.actors.train.stop_model.train_stop_model import train_decision

    drafts = options.drafts or tuple(demo.path(name) for name in demo.DRAFTS)
    reports = train_decision(
        options.data,
        options.target or demo.path("target"),
        drafts,
        texts=options.texts,
        device=options.device,
    )
    lines = []
    for report in reports:
        lines.append(f"{report.file}: {report.samples:,} samples")
        lines += [
            f"  {way}: accepted {found.accepted:.0%}; goes on at {found.goes_on:.0%} of the rows, where "
            f"{found.accepted_if_on:.0%} are accepted, {found.accepted_if_off:.0%} elsewhere; "
            f"area under the curve {found.area:.2f}"
            for way, found in report.ways.items()
        ]
    return TrainResult(report={"models": [asdict(one) for one in reports]}, lines=tuple(lines))


SPECS = (
    TrainerSpec(
        name="decision",
        run=run,
        options=DecisionOptions,
        summary="the decision model that stops drafting, beside the draft model's weights; again whenever either model changes",
        source="Lu et al. 2024, arXiv 2409.10644",
        needs=frozenset({TrainerNeed.TEXT, TrainerNeed.TARGET, TrainerNeed.DRAFT}),
    ),
)
