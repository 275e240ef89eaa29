"""What the numbers say: groups, contrasts, costs and advice, without pictures."""
