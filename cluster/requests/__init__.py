"""Running requests: queue, slots, one state machine a sequence, text and its end."""
