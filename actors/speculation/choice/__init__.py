"""Which verifiers there are, by name, and which tree each gets."""
