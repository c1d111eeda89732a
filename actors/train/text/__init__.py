"""Text for training: sources, tokenizer, documents, batches."""
