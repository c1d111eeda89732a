"""Keys and values: how much room there is, who holds which rows, and texts that share a beginning."""
