"""Trees of candidates as parallel arrays: shapes, paths, and hashes of the text below which they grow."""
