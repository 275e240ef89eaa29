"""What the trials of a study say, in numbers and enums: cells, contrasts, answers, audit."""
