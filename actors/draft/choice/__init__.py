"""Which drafting methods there are, by name."""
