"""Numbers as a person would say them, in one place for every surface."""


def duration(seconds: float) -> str:
    """A time for people: hours and minutes, minutes and seconds, or seconds; below ten of them with two digits.

    >>> duration(4.26), duration(42.4), duration(125), duration(7300), duration(1e7)
    ('4.3 s', '42 s', '2 min 05 s', '2:01 h', '2,777:46 h')
    """
    whole = round(seconds)
    if seconds < 9.95:
        return f"{seconds:.2g} s"
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600:,}:{whole % 3600 // 60:02d} h"


def rate(per_s: float, what: str) -> str:
    """How many in a second, with two digits at the least.

    >>> rate(1234.5, "steps"), rate(3.21, "steps"), rate(0.0123, "steps"), rate(0.0, "steps")
    ('1,234 steps/s', '3.2 steps/s', '0.012 steps/s', '0 steps/s')
    """
    return f"{per_s:,.0f} {what}/s" if per_s >= 9.95 else f"{per_s:.2g} {what}/s"


def size(num_bytes: float) -> str:
    """Bytes for people, in thousands as disks are sold: a MB is a million of them.

    >>> size(999), size(999_900), size(100e6), size(79_400_000_000)
    ('999 B', '1 MB', '100 MB', '79.4 GB')
    """
    for unit, power in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if num_bytes >= 0.9995 * power:  # what is rounded to it, too
            return f"{num_bytes / power:.3g} {unit}"
    return f"{num_bytes:.0f} B"


def number(value: float) -> str:
    """A value of a metaparameter for people; just below 1 with as many digits as its distance to 1 has.

    >>> number(0.0001), number(0.99995), number(0.31622776), number(10.0)
    ('0.0001', '0.99995', '0.316', '10')
    """
    return f"{value:.6g}" if 0.9 < value < 1 else f"{value:.3g}"
