"""Drafting with one decoder layer on the target's hidden states, which goes on on states of its own: EAGLE-3."""
