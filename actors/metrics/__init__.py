"""What an actor counts, for Prometheus: collected when it is asked for, so that a pass pays next to nothing."""
