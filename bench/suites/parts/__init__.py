"""Suites that time one part of the service."""
