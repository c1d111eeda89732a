"""Candidates that wait at a target, and how far their drafters are believed."""
