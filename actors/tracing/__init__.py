"""What an actor does and when, recorded while someone asks for a timeline."""
