"""Every signature in stages/ is checked in every test: types by beartype, shapes by jaxtyping.

Tests run side by side, a process for each core: more threads would only wait for each other.
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported

from jaxtyping import install_import_hook  # noqa: E402

from tests import checker  # noqa: E402

install_import_hook("stages", f"{checker.__name__}.checked")
