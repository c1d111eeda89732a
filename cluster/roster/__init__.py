"""Who is alive, where, and since when; the registry over gRPC."""
