"""From settings to a running engine."""
