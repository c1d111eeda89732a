"""Many requests, and what they amount to."""
