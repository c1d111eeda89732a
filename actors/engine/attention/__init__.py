"""Attention of packed rows over slots, with the mask of a tree."""
