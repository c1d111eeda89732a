"""`python -m bench.verifiers --target X --draft Y`: prints what `python -m bench verifiers` has measured of a pair of models."""

from __future__ import annotations

import argparse

from bench.report import rows as results
from bench.report import verifier_tables

TABLES = (verifier_tables.rounds, verifier_tables.nodes, verifier_tables.served)


def main() -> None:
    """Prints the tables that there are."""
    parser = argparse.ArgumentParser(prog="python -m bench.verifiers", description=__doc__)
    parser.add_argument("--target", default=verifier_tables.PAIR[0], help="as it was measured")
    parser.add_argument("--draft", default=verifier_tables.PAIR[1], help="as it was measured")
    parser.add_argument("--quick", action="store_true", help="rows of quick runs")
    args = parser.parse_args()
    measured = results.read("verifiers", is_quick=args.quick)
    rows = verifier_tables.of_pair(measured, args.target, args.draft)
    texts = [text for tell in TABLES if (text := tell(rows))]
    if not texts:
        parser.error(f"nothing was measured of {args.target} with {args.draft}")
    print("\n\n".join(texts))


if __name__ == "__main__":
    main()
