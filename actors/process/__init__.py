"""The life of an actor's process: its logs, its memory, its worker thread, its place on the roster."""
