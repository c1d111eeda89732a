"""Namespaces, links between them, and the nodes that live in them."""
