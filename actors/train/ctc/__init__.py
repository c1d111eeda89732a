"""Training of drafters whose frames are collapsed."""
