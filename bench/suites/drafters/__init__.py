"""Suites that compare drafters, and prove their outputs equal."""
