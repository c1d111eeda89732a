"""Drafting from text alone: what methods without a model share."""
