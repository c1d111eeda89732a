"""Passes timed on a GPU."""
