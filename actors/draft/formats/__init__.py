"""The formats of other projects' checkpoints, one family a file: how a folder is told, and what its content is in our terms."""
