"""One training run: steps, schedule, checkpoints, evaluation, within a bound on time."""
