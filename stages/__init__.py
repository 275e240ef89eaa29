from stages.core.ending import die_with_dvc
from stages.core.streams import open_streams

die_with_dvc()  # before a stage imports torch, which takes seconds
open_streams()
