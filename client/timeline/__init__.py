"""A trace as a timeline: assembled from what the service sent, written for Perfetto, read back, summed up. Pure.

Needs nothing but the contract, so that a client's install can take a trace and explain it.
"""
