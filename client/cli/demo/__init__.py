"""The demonstration: a service on this machine, and a client that shows what speculation does."""
