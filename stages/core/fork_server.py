"""Ends a fork server when the process that started it dies. Every fork server preloads this module.

A fork server learns that its starter is dead when a pipe closes, but its own forks keep that pipe
open. Without this module a training in a fork would go on until it is done.
"""

from stages.core.ending import die_with_parent

die_with_parent()
