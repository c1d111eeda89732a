"""Every verifier on the same contexts: acceptance, tokens per pass, bytes, and the optimum beside them.

`python -m bench verifiers`: about ten minutes on two cores. `--temperatures 0.8` measures a part.
"""

from bench.verifiers.suite import CHOICES, KEYS, run

__all__ = ["CHOICES", "KEYS", "run"]
