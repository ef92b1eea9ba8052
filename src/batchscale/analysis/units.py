"""The unit of batch sizes and of amounts of data in answers: examples, or tokens with sequences beside them.

Numbers stay in examples everywhere; a `SizeUnit` only writes them. Tokens are rounded as people write them. The
sequences beside them are exact, so that nothing is lost.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import polars as pl

from batchscale.formatting import list_sizes, span_text, tokens_text, whole_text
from batchscale.records.frames import Records
from batchscale.records.metadata.columns import METADATA

SizeText = Callable[[float], str]
TOKENS = "tokens_per_example"


@dataclass(frozen=True)
class SizeUnit:
    """The unit that an answer is written in: tokens if the tokens of an example are known, otherwise examples."""

    tokens_per_example: int | None = None

    @property
    def noun(self) -> str:
        """The unit of amounts of data."""
        return "examples" if self.tokens_per_example is None else "tokens"

    def size(self, batch_size: float, text: SizeText = whole_text) -> str:
        """Write a batch size.

        >>> SizeUnit().size(1024), SizeUnit(512).size(1024)
        ('1,024', '524k tokens (1,024 sequences)')
        """
        return self._write(lambda number: number(batch_size), text)

    def sizes(self, batch_sizes: Sequence[int]) -> str:
        """Write a list of batch sizes.

        >>> SizeUnit().sizes([1, 32]), SizeUnit(512).sizes([1, 32])
        ('1 and 32', '512 and 16k tokens (1 and 32 sequences)')
        """
        return self._write(lambda number: list_sizes(list(batch_sizes), number))

    def span(self, low: float, high: float, text: SizeText = whole_text, *, word: str = "to") -> str:
        """Write a range of batch sizes.

        >>> SizeUnit().span(16, 64), SizeUnit(512).span(16, 64, word="and")
        ('16 to 64', '8.2k and 33k tokens (16 and 64 sequences)')
        """
        return self._write(lambda number: f"{number(low)} {word} {number(high)}", text)

    def estimate(
        self,
        value: float,
        low: float | None,
        high: float | None,
        text: SizeText = whole_text,
        *,
        always: bool = False,
    ) -> str:
        """Write a batch size with its interval in brackets, left out where both ends read the same unless ``always``.

        >>> SizeUnit().estimate(32, 16, 64), SizeUnit(512).estimate(32, 16, 64), SizeUnit(512).estimate(32, None, None)
        ('32 (16 to 64)', '16k tokens (8.2k to 33k; 32 sequences)', '16k tokens (32 sequences)')
        """
        is_same = low is not None and high is not None and text(low) == text(high)
        number = text if self.tokens_per_example is None else self._tokens
        span = "" if is_same and not always else span_text(low, high, number)
        if self.tokens_per_example is None:
            return f"{text(value)} ({span})" if span else text(value)
        return f"{number(value)} tokens ({span}{'; ' if span else ''}{_count(text(value))})"

    def bounds(self, low: float | None, high: float | None, text: SizeText = whole_text) -> str:
        """Write an interval of batch sizes, perhaps with an open end; empty without any bound.

        >>> SizeUnit().bounds(16, None), SizeUnit(512).bounds(None, 64), SizeUnit(512).bounds(None, None)
        ('at least 16', 'at most 33k tokens (at most 64 sequences)', '')
        """
        if low is None and high is None:
            return ""
        return self._write(lambda number: span_text(low, high, number), text)

    def short(self, batch_size: float, text: SizeText = whole_text) -> str:
        """Write a batch size without its unit, for tables and axes that name the unit.

        >>> SizeUnit().short(1024), SizeUnit(512).short(1024)
        ('1,024', '524k')
        """
        return text(batch_size) if self.tokens_per_example is None else self._tokens(batch_size)

    def brief(self, batch_size: float, text: SizeText = whole_text) -> str:
        """Write a batch size without the sequences, for labels of charts.

        >>> SizeUnit().brief(1024), SizeUnit(512).brief(1024)
        ('1,024', '524k tokens')
        """
        return self.short(batch_size, text) + ("" if self.tokens_per_example is None else " tokens")

    def amount(self, examples: float | None) -> int | str | None:
        """Return an amount of data as a cell of a table: in full, or tokens in few digits.

        >>> SizeUnit().amount(2048), SizeUnit(512).amount(2048), SizeUnit(512).amount(None)
        (2048, '1M', None)
        """
        if examples is None:
            return None
        return round(examples) if self.tokens_per_example is None else self._tokens(examples)

    @property
    def size_columns(self) -> tuple[str, ...]:
        """The headings of the columns of a batch size."""
        return ("batch size",) if self.tokens_per_example is None else ("batch size (tokens)", "sequences")

    def size_cells(self, batch_size: int) -> tuple[int | str, ...]:
        """Return the cells of a batch size, one for each of ``size_columns``."""
        return (batch_size,) if self.tokens_per_example is None else (self._tokens(batch_size), batch_size)

    def tokens(self, examples: float | None) -> int | None:
        """Return the exact tokens of a number of examples; None if the unit is not tokens."""
        if examples is None or self.tokens_per_example is None:
            return None
        return round(examples * self.tokens_per_example)

    def _tokens(self, examples: float) -> str:
        return tokens_text(examples * (self.tokens_per_example or 1))

    def _write(self, phrase: Callable[[SizeText], str], text: SizeText = whole_text) -> str:
        """Write a phrase of batch sizes: in examples, or in tokens and again in sequences."""
        if self.tokens_per_example is None:
            return phrase(text)
        return f"{phrase(self._tokens)} tokens ({_count(phrase(text))})"


EXAMPLES = SizeUnit()


def _count(text: str) -> str:
    return f"{text} sequence{'' if text == '1' else 's'}"


def unit_of(records: Records) -> SizeUnit:
    """Return the unit of records: tokens if all studies that state the tokens of an example agree."""
    return find_unit(records.studies)


def find_unit(studies: pl.DataFrame) -> SizeUnit:
    """Return the unit of a frame of studies."""
    stated = studies[METADATA].struct.field(TOKENS).drop_nulls().unique()
    return SizeUnit(int(stated[0])) if len(stated) == 1 else EXAMPLES
