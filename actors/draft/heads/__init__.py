"""Small networks that draft from the target's hidden states: their shapes, weights and files, and the engine that runs them."""
