"""Trees for verifiers that test frozen trees: drawn level by level, also below texts that are only expected."""
