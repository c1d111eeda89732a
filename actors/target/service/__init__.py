"""A target as a process: its Ray shell, its gRPC server, its metrics."""
