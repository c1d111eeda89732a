"""What a drafter knows, and what a drafting method must offer."""
