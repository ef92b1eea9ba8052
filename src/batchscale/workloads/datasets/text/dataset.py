"""Rows of tokens as a data set: next-token prediction, with a mask over padding."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import final

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from batchscale.workloads.datasets.text.options import SequenceOptions
from batchscale.workloads.datasets.text.tokens import TokenRows
from batchscale.workloads.workload import ArraySplit, Batch, Dataset, HostBatch, IndexedSplit

_MEGABYTE = 10**6


@final
@dataclass(frozen=True)
class TokenSplit(IndexedSplit):
    """A split that stays on disk; rows are read when they are needed."""

    rows: TokenRows

    @property
    def num_examples(self) -> int:
        """The number of rows."""
        return len(self.rows)

    def read(self, indices: NDArray[np.int64], seeds: NDArray[np.int64] | None) -> HostBatch:  # noqa: ARG002
        """Return rows of tokens and their lengths; there is no augmentation, so seeds change nothing."""
        tokens, lengths = self.rows.read(np.asarray(indices))
        return {"labels": tokens, "lengths": lengths}


def make_text_dataset(
    name: str,
    splits: Mapping[str, TokenRows],
    first: int,
    num_outputs: int,
    options: SequenceOptions,
    token_bytes: NDArray[np.float32] | None = None,
) -> Dataset:
    """Return a data set whose stored rows become inputs, labels and mask on the device.

    ``first`` is the token that stands before the first of a row. Evaluation rows may be longer than training rows.
    With ``token_bytes``, the bytes that each token stands for, batches also have those of the labels.
    """
    return Dataset(
        name=name,
        splits={split: _make_split(rows, options.memory_limit_mb) for split, rows in splits.items()},
        prepare=shift_right(first, token_bytes),
        input_shape=(options.row_length,),
        input_dtype=jnp.int32,
        num_outputs=num_outputs,
        tokens_per_example=options.sequence_length,
    )


def shift_right(first: int, token_bytes: NDArray[np.float32] | None = None) -> Callable[[Batch], Batch]:
    """Return a ``prepare``: every token is predicted from those before it; the mask is 1 for real tokens."""

    def prepare(batch: Batch) -> Batch:
        labels = batch["labels"].astype(jnp.int32)
        before = jnp.full((labels.shape[0], 1), first, jnp.int32)
        mask = jnp.arange(labels.shape[1]) < batch["lengths"][:, None]
        sizes = {} if token_bytes is None else {"bytes": jnp.asarray(token_bytes)[labels]}
        return {
            "inputs": jnp.concatenate([before, labels[:, :-1]], axis=1),
            "labels": labels,
            "mask": mask.astype(jnp.float32),
            **sizes,
        }

    return prepare


def _make_split(rows: TokenRows, memory_limit_mb: int) -> ArraySplit | TokenSplit:
    if rows.num_bytes > memory_limit_mb * _MEGABYTE:
        return TokenSplit(rows)
    tokens, lengths = rows.read(np.arange(len(rows)))
    return ArraySplit({"labels": tokens, "lengths": lengths})
