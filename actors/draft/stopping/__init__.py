"""When drafting stops: the length policies of requests."""
