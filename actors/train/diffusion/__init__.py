"""Training of diffusion drafters."""
