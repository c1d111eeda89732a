"""What a pass decides: candidates of all sessions, draws, walks through trees, and what is committed."""
