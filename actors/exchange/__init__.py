"""What a drafter and a target tell each other, packed: one frame a pass, the same for both ends."""
