"""Drafting with frames that hold tokens, repeats and blanks, of which a string is made by collapsing."""
