"""Rows of results, and the tables and plots made of them."""
