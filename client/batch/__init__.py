"""Files of requests: records in, answers out, each exactly once. See docs/batch.md."""
