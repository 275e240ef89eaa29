"""The audit: what a sceptical reviewer would ask of a study, answered from its own records."""
