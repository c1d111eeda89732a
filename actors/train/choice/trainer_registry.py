"""Every trainer, by name. The command line and the documentation ask here; nobody else lists them."""

from __future__ import annotations

from outrider.actors.speculation.plugins import discover
from outrider.actors.train import methods
from outrider.actors.train.trainer_spec import TrainerSpec

GROUP = "outrider.trainers"
"""Entry points under which other packages offer trainers."""

TRAINERS = discover(methods, TrainerSpec, group=GROUP)
"""Every method of `outrider train`."""
