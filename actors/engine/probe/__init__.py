"""A look at a freshly loaded model: whether tree attention over slots gives its own numbers."""
