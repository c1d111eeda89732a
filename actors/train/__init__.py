"""Training of the demonstration models, and tools that reshape a checkpoint."""
