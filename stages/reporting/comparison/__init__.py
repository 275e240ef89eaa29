"""What the numbers say: results, groups, contrasts, costs, advice. No figures, no page."""
