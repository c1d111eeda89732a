"""Which drafter, which tree, how many of each: expected from figures, then tried in virtual time."""
