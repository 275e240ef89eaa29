"""Ends a fork server with the process that started it; to be preloaded by each.

A fork server notices that its starter is dead by the end of a pipe, but its forks hold that pipe
open. Without this module a training in a fork would go on until it is done.
"""

from stages.core.ending import die_with_parent

die_with_parent()
