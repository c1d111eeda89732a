"""Suites in virtual time, and what they predict of those in real time."""
