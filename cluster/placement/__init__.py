"""Which actors a configuration asks for, and on which node each runs."""
