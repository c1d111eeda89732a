"""The configuration: its fields, its file, its errors."""
