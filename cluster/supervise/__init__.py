"""Which actors there are: started, watched, replaced, changed."""
