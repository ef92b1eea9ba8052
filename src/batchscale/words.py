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
