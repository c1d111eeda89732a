"""What is computed from measurements."""
