"""Targets: verify candidates and hold the truth of each session."""
