from stages.core.ending import die_with_dvc

die_with_dvc()  # before a stage imports torch, which takes seconds
