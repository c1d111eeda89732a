"""Trees that are drawn before verification, with the probabilities that they were drawn from, as bytes."""
