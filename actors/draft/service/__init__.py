"""A drafter as a process: its Ray shell, its gRPC server, its streams, its metrics."""
