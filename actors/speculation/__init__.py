"""The mathematics of speculation: pure, knows nothing of engines, wires or Ray."""
