"""Sources: where text and labelled rows come from. Each file without a leading underscore
is a source; to add one, add a file and name it in params.yaml.
"""
