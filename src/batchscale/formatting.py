"""Values as text, in one place for every surface: numbers, times and sizes for people, and values of TOML files."""

import json
import math
from collections.abc import Callable, Mapping


def duration(seconds: float) -> str:
    """Format a time: hours and minutes, minutes and seconds, or seconds; below ten seconds with two digits.

    >>> duration(4.26), duration(42.4), duration(125), duration(7300), duration(1e7)
    ('4.3 s', '42 s', '2 min 05 s', '2:01 h', '2,777:46 h')
    >>> duration(0.0271), duration(0.00271), duration(1.2e-5), duration(0)
    ('27 ms', '2.7 ms', '0.012 ms', '0 s')
    """
    whole = round(seconds)
    if 0 < seconds < 0.0995:
        return f"{1000 * seconds:.2g} ms"
    if seconds < 9.95:
        return f"{seconds:.2g} s"
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600:,}:{whole % 3600 // 60:02d} h"


def rough_duration(seconds: float) -> str:
    """Format an estimated time in few digits, because it is not known better.

    >>> [rough_duration(seconds) for seconds in (4, 70, 560, 1500, 5300, 40_000, 1e6)]
    ['less than a minute', 'about 1 min', 'about 9 min', 'about 25 min', 'about 1.5 h', 'about 11 h', 'about 12 days']
    """
    minutes, hours, days = seconds / 60, seconds / 3600, seconds / 86_400
    if seconds < 60:
        return "less than a minute"
    if minutes < 9.5:
        return f"about {minutes:.0f} min"
    if minutes < 57.5:
        return f"about {5 * round(minutes / 5)} min"
    if hours < 2.75:
        return f"about {round(2 * hours) / 2:g} h"
    return f"about {hours:.0f} h" if hours < 47.5 else f"about {days:,.0f} days"


def rate(per_s: float, noun: str) -> str:
    """Format a rate per second with at least two digits.

    >>> rate(1234.5, "steps"), rate(3.21, "steps"), rate(0.0123, "steps"), rate(0.0, "steps")
    ('1,234 steps/s', '3.2 steps/s', '0.012 steps/s', '0 steps/s')
    """
    return f"{per_s:,.0f} {noun}/s" if per_s >= 9.95 else f"{per_s:.2g} {noun}/s"


def size(num_bytes: float) -> str:
    """Format a number of bytes; a MB is a million of them.

    >>> size(999), size(999_900), size(100e6), size(79_400_000_000)
    ('999 B', '1 MB', '100 MB', '79.4 GB')
    """
    for unit, power in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if num_bytes >= 0.9995 * power:  # also numbers that round up to it
            return f"{num_bytes / power:.3g} {unit}"
    return f"{num_bytes:.0f} B"


def whole_text(value: float | None) -> str:
    """Format a number that is counted (batch sizes, steps, trials), or an end of its interval: in full.

    >>> whole_text(15360), whole_text(1818.87), whole_text(None)
    ('15,360', '1,819', '')
    """
    return "" if value is None else f"{value:,.0f}"


def count_text(count: int, noun: str, plural: str | None = None) -> str:
    """Format a number of things with their noun in the singular or plural, which has an s unless it is given.

    >>> count_text(1, "experiment"), count_text(0, "trial"), count_text(1200, "study", "studies")
    ('1 experiment', '0 trials', '1,200 studies')
    """
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def rounded_text(value: float | None, digits: int = 3) -> str:
    """Format a number that is computed (a critical batch size, a ratio, epochs): three digits, millions as M.

    >>> rounded_text(71.84), rounded_text(1818.87), rounded_text(0.012345), rounded_text(1.8512e6), rounded_text(None)
    ('71.8', '1,820', '0.0123', '1.85 M', '')
    >>> rounded_text(71.84, digits=2), rounded_text(1818.87, digits=2)
    ('72', '1,800')
    """
    if value is None:
        return ""
    rounded = float(f"{value:.{digits}g}")
    for unit, power in (("trillion", 1e12), ("billion", 1e9), ("M", 1e6)):
        if power <= abs(rounded) < 1e15:
            return f"{rounded / power:.{digits}g} {unit}"
    return f"{rounded:,.0f}" if 100 <= abs(rounded) < 1e15 else f"{rounded:g}"


def times_text(ratio: float) -> str:
    """Format a factor in few digits: two decimals below 2, then two digits.

    >>> times_text(1.549), times_text(2.61), times_text(30.72), times_text(1234.5)
    ('1.55', '2.6', '31', '1,200')
    """
    if ratio < 1.995:
        return f"{ratio:.2f}"
    return f"{ratio:.1f}" if ratio < 9.95 else rounded_text(ratio, digits=2)


def number_text(value: float | None) -> str:
    """Format a number of a table with both kinds: a whole one in full, any other to three digits.

    >>> number_text(1234567), number_text(1818.87)
    ('1,234,567', '1,820')
    """
    return whole_text(value) if isinstance(value, int) else rounded_text(value)


def metaparameter_text(value: float, digits: int = 3) -> str:
    """Format a metaparameter in few digits, but enough to distinguish it from 1.

    >>> metaparameter_text(0.9999), metaparameter_text(0.0123456), metaparameter_text(1.0), metaparameter_text(0.99995)
    ('0.9999', '0.0123', '1', '0.99995')
    >>> metaparameter_text(0.838998, digits=2), metaparameter_text(0.99, digits=2)
    ('0.84', '0.99')
    """
    if 0.5 < value < 1:
        places = max(2, digits - 1 - math.floor(math.log10(1 - value)) - 1)
        return f"{value:.{min(places, 16)}f}".rstrip("0")
    return f"{value:.{digits}g}"


def percent_text(share: float | None) -> str:
    """Format a share in whole percent.

    >>> percent_text(0.153), percent_text(-0.02)
    ('15 %', '-2 %')
    """
    return "" if share is None else f"{round(100 * share)} %"


def span_text(low: float | None, high: float | None, text: Callable[[float], str] = rounded_text) -> str:
    """Format an interval; empty without any bound.

    >>> span_text(16, 64), span_text(1818.87, None), span_text(None, 1818.87, whole_text)
    ('16 to 64', 'at least 1,820', 'at most 1,819')
    """
    if low is None:
        return "" if high is None else f"at most {text(high)}"
    return f"at least {text(low)}" if high is None else f"{text(low)} to {text(high)}"


def tokens_text(tokens: float) -> str:
    """Format a number of tokens as people write it: two or three digits with k, M, B or T.

    >>> [tokens_text(tokens) for tokens in (512, 1024, 4096, 16_384, 524_288, 999_700, 1_048_576, 20e6, 1.5e13)]
    ['512', '1k', '4.1k', '16k', '524k', '1M', '1M', '20M', '15T']
    """
    for unit, power in (("T", 1e12), ("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if tokens >= 0.9995 * power:  # also numbers that round up to it
            amount = tokens / power
            return f"{amount:.1f}".removesuffix(".0") + unit if amount < 9.95 else f"{amount:.0f}{unit}"
    return rounded_text(tokens)


def list_sizes(sizes: list[int], text: Callable[[float], str] = whole_text) -> str:
    """Return batch sizes as a list in a sentence; after six of them the number of the others.

    >>> list_sizes([1, 2, 1024]), list_sizes([8]), list_sizes(list(range(1, 10)))
    ('1, 2 and 1,024', '8', '1, 2, 3, 4, 5, 6 and 3 more')
    """
    texts = [text(size) for size in sizes[:6]] + ([f"{len(sizes) - 6} more"] if len(sizes) > 6 else [])
    return texts[0] if len(texts) == 1 else ", ".join(texts[:-1]) + " and " + texts[-1]


def toml_value(value: object) -> str:
    r"""Format a value of a TOML file: text, number, true or false, date, list, or an inline table.

    >>> toml_value(True), toml_value(0.5), toml_value('a "b"'), toml_value({"type": "DOUBLE", "points": [1, 2.0]})
    ('true', '0.5', '"a \\"b\\""', '{ type = "DOUBLE", points = [1, 2.0] }')
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # the escapes of JSON are TOML's
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    if isinstance(value, Mapping):
        return f"{{ {', '.join(toml_line(key, item) for key, item in value.items())} }}"
    return str(value)


def toml_line(key: str, value: object) -> str:
    """Format a key of a TOML file and its value."""
    return f"{key} = {toml_value(value)}"
