"""Models behind one interface: slots of keys and values, ragged batches of token trees."""
