"""gRPC between the service's own processes: servers, channels, TLS, credentials, and dataclasses as messages."""
