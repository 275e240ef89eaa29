"""Sources: where text and labelled rows come from. A file without a leading underscore is a
source; add one and name it in params.yaml.
"""
