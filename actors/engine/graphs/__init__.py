"""Passes of fixed shapes, recorded once and replayed."""
