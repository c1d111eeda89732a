"""Selectors of drafters, one file a method: who drafts for a text where fewer may work than there are."""
