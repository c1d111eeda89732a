"""The proof that speculative output is plain output: who drafts, what disturbs them, and what a row must show."""
