"""What a target runs next, decided from one objective (tokens a second), one cost model and the candidates' probabilities. Pure."""
