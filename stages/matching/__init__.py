"""Equal budgets: how many steps each run trains and how large its model is beside the reference."""
