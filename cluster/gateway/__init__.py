"""The public door: requests in, streams of text out, everything refused that cannot be done."""
