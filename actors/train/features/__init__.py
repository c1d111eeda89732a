"""A target's hidden states at every position of texts: computed once, kept on disk, read as often as wanted."""
