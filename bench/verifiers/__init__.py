"""Every verifier on the same contexts: acceptance, tokens per pass, bytes, and the optimum beside them."""
