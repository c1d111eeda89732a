"""Drafters: propose candidate trees below the committed text."""
