"""Factors and lists of sizes as they stand in sentences."""

from batchscale.formatting import rounded_text


def times_text(value: float | None) -> str:
    """How many times as much.

    >>> times_text(1.549), times_text(30.72), times_text(1234.5)
    ('1.55', '30.7', '1,230')
    """
    return f"{value:.2f}" if value is not None and value < 10 else rounded_text(value)


def list_sizes(sizes: list[int]) -> str:
    """Batch sizes in words: "1, 2 and 4"; after six of them how many more there are."""
    shown = [f"{size:,}" for size in sizes[:6]] + ([f"{len(sizes) - 6} more"] if len(sizes) > 6 else [])
    return shown[0] if len(shown) == 1 else ", ".join(shown[:-1]) + " and " + shown[-1]
