"""Suites that time the whole service."""
