"""The trainers, one file each; read by the command line, so that none imports torch before it runs."""
