"""What can go wrong before or while training, each with what to do about it."""

from __future__ import annotations


class TrainError(Exception):
    """Base of every error this folder raises on purpose: an option, a file or a model is not what it must be."""


class TrainingFailed(TrainError):
    """What was asked for is right, but the work could not be done."""


class DataError(TrainError):
    """A training file is missing, empty or not in the documented form."""


class ResumeError(TrainError):
    """Saved progress belongs to a run with other settings."""
