"""Drafting with a model: the parts that methods with a model share."""
