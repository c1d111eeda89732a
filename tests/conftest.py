"""What holds for every test: one arithmetic thread, no deadlines that a busy machine would miss."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# Before torch is imported anywhere: tests share the cores with each other and with whatever else runs.
os.environ.setdefault("OMP_NUM_THREADS", "1")

settings.register_profile("outrider", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("outrider")
