"""What draft nets that are trained for one target share: their folders, the target's tables of tokens, and how their drafters are put together."""
