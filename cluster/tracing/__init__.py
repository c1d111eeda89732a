"""One trace over all actors, at a coordinator."""
