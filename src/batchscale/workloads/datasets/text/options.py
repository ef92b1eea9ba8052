"""The options of text data sets, and the description that these sets have in common. Imports no jax."""

from typing import Literal

from pydantic import Field, model_validator

from batchscale.workloads.datasets.declaration import DatasetInfo, NoOptions
from batchscale.workloads.tasks import Task

NUM_BYTE_TOKENS = 258
"""Every byte, padding and the end of a sentence: the smallest vocabulary."""


class SequenceOptions(NoOptions):
    """The options that turn sentences into rows of tokens.

    ``train_length`` and ``eval_length`` clip sentences (None: never). ``sequence_length`` packs instead: all sentences
    end to end, cut into blocks of this length. ``memory_limit_mb`` is the size above which a split stays on disk.
    """

    train_length: int = Field(default=64, ge=1, le=65536)
    eval_length: int | None = Field(default=None, ge=1, le=65536)
    sequence_length: int | None = Field(default=None, ge=1, le=65536)
    memory_limit_mb: int = Field(default=512, ge=0)
    path: str | None = None

    @property
    def row_length(self) -> int:
        """The length of a training row."""
        return self.sequence_length or self.train_length


class TokenOptions(SequenceOptions):
    """``tokenizer``: sub-words trained on the text, or every byte. ``text_column`` names the column of Parquet files.

    ``vocabulary_size`` is the number of sub-words, including the two special ones.
    """

    tokenizer: Literal["subwords", "bytes"] = "subwords"
    vocabulary_size: int = Field(default=32_000, ge=NUM_BYTE_TOKENS, le=2**24)
    text_column: str = "text"

    @model_validator(mode="after")
    def _check_tokenizer(self) -> "TokenOptions":
        if self.tokenizer == "bytes" and "vocabulary_size" in self.model_fields_set:
            raise ValueError(f'the tokenizer "bytes" always has {NUM_BYTE_TOKENS} tokens; remove vocabulary_size')
        return self

    @property
    def num_outputs(self) -> int:
        """The number of tokens, special ones included."""
        return NUM_BYTE_TOKENS if self.tokenizer == "bytes" else self.vocabulary_size


class CommonCrawlOptions(TokenOptions):
    """``holdout``: the share of sentences that is not trained on; the paper's 0.02 % unless given."""

    vocabulary_size: int = Field(default=24_006, ge=NUM_BYTE_TOKENS, le=2**24)
    eval_length: int | None = Field(default=476, ge=1, le=65536)
    holdout: float = Field(default=0.0002, gt=0, lt=1)


class UserTextOptions(TokenOptions):
    """A user's text: ``path`` is a file or a folder; without ``val_path`` and ``test_path`` a share is held out.

    ``holdout`` is that share, half of it for validation and half for test.
    """

    path: str
    val_path: str | None = None
    test_path: str | None = None
    holdout: float = Field(default=0.1, gt=0, lt=1)


def sentence_info(
    name: str, count: int | None, num_outputs: int, options: SequenceOptions, task: Task = Task.LANGUAGE
) -> DatasetInfo:
    """Return the description of a text of ``count`` training rows (None: only the files can tell).

    Packed rows all have the same number of tokens; sentences do not.
    """
    shape = (options.row_length,)
    return DatasetInfo(name, task, count, num_outputs, shape, "int32", options.sequence_length)
