"""Small models of every architecture of transformers, tried with the engine."""
