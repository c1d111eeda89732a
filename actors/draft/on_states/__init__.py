"""What drafters that read the target's hidden states share: their folders, the target's tables of tokens, and how they are put together."""
