"""Every signature in stages/ is checked in every test: types by beartype, shapes by jaxtyping."""

from jaxtyping import install_import_hook

from tests import checker

install_import_hook("stages", f"{checker.__name__}.checked")
