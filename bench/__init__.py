"""Benchmarks of the real service. Every figure has its baseline in the same run, and equal outputs are checked first.

`python -m bench` runs everything; `python -m bench equality single` runs parts. Results are JSON lines in `bench/results/`;
`python -m bench report` writes the tables of the README from them.
"""
