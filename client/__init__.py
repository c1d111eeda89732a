"""The client library and the command line. Imports neither torch nor Ray."""
