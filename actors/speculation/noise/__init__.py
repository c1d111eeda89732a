"""Random numbers that every device and machine agrees on: functions of (seed, position, token)."""
