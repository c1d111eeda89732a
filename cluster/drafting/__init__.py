"""Which drafters work for a text: attached, exchanged and let go, and who should."""
