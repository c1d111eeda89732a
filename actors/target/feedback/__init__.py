"""What drafters learn of passes beyond tokens: hidden states and likeliest tokens, if they ask."""
