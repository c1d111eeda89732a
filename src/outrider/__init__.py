"""Outrider: a distributed speculative decoding service.

Installing `outrider` gives the client (`outrider.client`) and the command line; `outrider[serve]` adds what serving
needs (`outrider.actors`, `outrider.cluster`).
"""

__version__ = "0.1.0"
