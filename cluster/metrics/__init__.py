"""What the service tells operators: metrics of requests, one page for every actor, spans of requests."""
