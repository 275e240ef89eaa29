"""How beartype checks: as pyright does, an int will do where a float is asked for."""

from beartype import BeartypeConf, beartype

checked = beartype(conf=BeartypeConf(is_pep484_tower=True))
