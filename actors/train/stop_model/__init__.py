"""Training of the model that says when drafting stops."""
