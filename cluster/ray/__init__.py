"""Ray: started or joined, nodes, placement, actors as processes."""
