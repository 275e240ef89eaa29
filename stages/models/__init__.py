"""Backbones. Each file without a leading underscore defines one architecture; the parameters of its
constructor are the settings of ``architecture:`` in params.yaml."""
