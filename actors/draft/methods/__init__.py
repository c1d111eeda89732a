"""The drafting methods, one file each, and what they must offer."""
