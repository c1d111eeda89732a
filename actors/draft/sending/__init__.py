"""What a drafter sends, and when."""
