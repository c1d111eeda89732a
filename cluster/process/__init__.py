"""Processes and files of a service on this machine: signals, private folder, leftovers, what a start says."""
