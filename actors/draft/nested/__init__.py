"""Drafting with a model that has exits: which one a session may use, by its target."""
