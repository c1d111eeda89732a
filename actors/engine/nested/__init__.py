"""One draft model of several sizes: its first layers are models of their own, over shared keys and values."""
