"""What the best schedule would reach, beside what was measured."""
