"""Training of nested drafts: one model whose first layers are drafts of their own."""
