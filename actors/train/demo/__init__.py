"""Training of the demonstration models."""
