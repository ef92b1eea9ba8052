"""Numbers, shares, intervals and lists of sizes as they stand in sentences."""

from collections.abc import Callable


def number(value: float | None) -> str:
    """A number to three digits, with separators.

    >>> number(71.84), number(12345.6), number(None)
    ('71.8', '12,300', '-')
    """
    if value is None:
        return "-"
    digits = float(f"{value:.3g}")
    return f"{digits:,.0f}" if abs(digits) >= 100 else f"{digits:g}"


def size_text(value: float | None) -> str:
    """A measured batch size, in full.

    >>> size_text(15360.0)
    '15,360'
    """
    return "-" if value is None else f"{value:,.0f}"


def times(value: float | None) -> str:
    """How many times as much.

    >>> times(1.549), times(30.72), times(1234.5)
    ('1.55', '30.7', '1,230')
    """
    return "-" if value is None else f"{value:.2f}" if value < 10 else number(value)


def percent(share: float | None) -> str:
    """A share in whole percent.

    >>> percent(0.153), percent(-0.02)
    ('15 %', '-2 %')
    """
    return "-" if share is None else f"{round(100 * share)} %"


def span(low: float | None, high: float | None, text: Callable[[float | None], str] = number) -> str:
    """An interval in words; empty where nothing is bounded.

    >>> span(16, 64), span(16, None), span(None, 64)
    ('16 to 64', 'at least 16', 'at most 64')
    """
    if low is None:
        return "" if high is None else f"at most {text(high)}"
    return f"at least {text(low)}" if high is None else f"{text(low)} to {text(high)}"


def list_sizes(sizes: list[int]) -> str:
    """Batch sizes in words: "1, 2 and 4"; after six of them how many more there are."""
    shown = [f"{size:,}" for size in sizes[:6]] + ([f"{len(sizes) - 6} more"] if len(sizes) > 6 else [])
    return shown[0] if len(shown) == 1 else ", ".join(shown[:-1]) + " and " + shown[-1]
