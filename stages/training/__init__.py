"""Training: the one loop, its optimizer, data and checkpoints, and the device it runs on."""
