"""Training of the networks of `draft/heads` on a target's hidden states."""
