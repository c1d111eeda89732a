"""What a drafter is told of the target beyond tokens: books of what came, and the way to the method."""
