"""The control plane: coordinator, supervisor, placement, configuration."""
