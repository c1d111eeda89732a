"""Which trainers there are, by name."""
