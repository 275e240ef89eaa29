"""Classical baselines without pretraining. A file without a leading underscore is a baseline."""
