"""Requests and answers as values, and the same as messages."""
