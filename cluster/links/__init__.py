"""A coordinator's streams to targets and drafters."""
