"""The commands of `outrider`, one file each."""
