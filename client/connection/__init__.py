"""Connections to a service: addresses, certificates, tokens, time limits, retries."""
