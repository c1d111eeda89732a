"""The trees that a drafter grows, and which of their nodes are worth a row."""
