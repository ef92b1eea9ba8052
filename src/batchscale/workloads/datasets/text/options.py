"""The options of text data sets, and the description that these sets have in common. Imports no jax."""

from pydantic import Field

from batchscale.workloads.datasets.declaration import DatasetInfo, NoOptions
from batchscale.workloads.tasks import Task

_SMALLEST_VOCABULARY = 258  # every byte, padding and the end of a sentence


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


class SubwordOptions(SequenceOptions):
    """``vocabulary_size``: the number of sub-words, including the two special ones."""

    vocabulary_size: int = Field(default=32_000, ge=_SMALLEST_VOCABULARY, le=2**24)


class CommonCrawlOptions(SubwordOptions):
    """``holdout``: the share of sentences that is not trained on; the paper's 0.02 % unless given."""

    vocabulary_size: int = Field(default=24_006, ge=_SMALLEST_VOCABULARY, le=2**24)
    eval_length: int | None = Field(default=476, ge=1, le=65536)
    holdout: float = Field(default=0.0002, gt=0, lt=1)


class UserTextOptions(SubwordOptions):
    """A user's text: ``path`` is a file or a folder; without ``val_path`` and ``test_path`` a share is held out.

    ``holdout`` is that share, half of it for validation and half for test.
    """

    path: str
    val_path: str | None = None
    test_path: str | None = None
    holdout: float = Field(default=0.1, gt=0, lt=1)


def sentence_info(name: str, count: int | None, num_outputs: int, options: SequenceOptions) -> DatasetInfo:
    """Return the description of a text of ``count`` training rows (None: only the files can tell).

    Packed rows all have the same number of tokens; sentences do not.
    """
    shape = (options.row_length,)
    return DatasetInfo(name, Task.LANGUAGE, count, num_outputs, shape, "int32", options.sequence_length)
