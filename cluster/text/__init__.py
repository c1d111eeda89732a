"""Tokens to text and back, and where a text ends."""
