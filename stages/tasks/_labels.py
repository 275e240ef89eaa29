"""What the labels of a task look like and which metric it reports, readable without torch."""

KINDS = {"classification": ("text", "label"), "tagging": ("words", "tags")}
METRICS = {"classification": "macro_f1", "tagging": "entity_f1"}
