"""The workers that hold models, and what they are made of."""
