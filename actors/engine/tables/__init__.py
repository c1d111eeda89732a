"""Models without weights: tables, laws, and devices that are not there."""
