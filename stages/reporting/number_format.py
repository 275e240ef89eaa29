"""Numbers as files and tables show them."""


def digits(value: float | None) -> float | str:
    """A number with six digits behind the point, or nothing."""
    return "" if value is None else round(value, 6)


def significant(value: float | None) -> float | str:
    """A number with three significant digits, or nothing."""
    return "" if value is None else float(f"{value:.3g}")


def compact(value: float | None) -> str:
    """``2.55M``: three significant digits and a unit."""
    if value is None:
        return "unknown"
    power = 0
    while value >= 999.5 and power < 6:
        value, power = value / 1000, power + 1
    return f"{value:.3g}{' kMGTPE'[power].strip()}"
