"""What verifiers are made of: their signature, walks down trees, residuals, selections."""
