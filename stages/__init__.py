from stages.core.ending import die_with_dvc, end_at_interrupts
from stages.core.streams import open_streams
from stages.core.temporary import need_temporary_folder

die_with_dvc()  # before a stage imports torch, which takes seconds
end_at_interrupts()
open_streams()
need_temporary_folder()
