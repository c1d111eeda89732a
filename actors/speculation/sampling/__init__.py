"""From logits to the distribution that a request asks for, and to draws from it."""
