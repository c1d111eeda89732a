"""What a checkpoint says of its model, and how much room it gets."""
