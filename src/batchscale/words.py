"""Numbers as a person would say them, in one place for every surface."""


def duration(seconds: float) -> str:
    """A time for people.

    >>> duration(42), duration(125), duration(7300)
    ('42 s', '2 min 05 s', '2 h 01 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def rate(per_s: float) -> str:
    """How many in a second; fewer than ten with their fraction, few as the time of one.

    >>> rate(1234.5), rate(3.21), rate(0.25), rate(0.0)
    ('1,234/s', '3.2/s', 'one in 4 s', '0/s')
    """
    if per_s <= 0:
        return "0/s"
    if per_s < 0.95:
        return f"one in {duration(1 / per_s)}"
    return f"{per_s:.1f}/s" if per_s < 9.95 else f"{per_s:,.0f}/s"


def number(value: float) -> str:
    """A value of a metaparameter with as many digits as tell it from its neighbours, also close to 1.

    >>> number(0.0001), number(0.99995), number(0.31622776)
    ('0.0001', '0.99995', '0.316228')
    """
    return f"{value:.6g}"
