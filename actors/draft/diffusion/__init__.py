"""Drafting a block of tokens in a few denoising steps, from the text alone."""
