"""A whole service, started and ended; what the commands of the command line do on the serving side."""
