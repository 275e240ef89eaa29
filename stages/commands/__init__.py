"""What a user runs beside dvc: plan, fits, predict, export, ui and summary."""
