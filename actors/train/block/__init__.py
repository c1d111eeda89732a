"""Training of drafters that propose blocks."""
