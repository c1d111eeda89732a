"""What a target knows: sessions, candidates, drafters, the pass that runs."""
