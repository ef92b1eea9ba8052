"""The parts of a workload: data set, model, loss, metrics, optimizer. The interface that training uses.

All functions here are pure and traceable unless marked "host". A batch is a mapping of arrays whose first axis is
the example; ``inputs`` and ``labels`` always exist, ``mask`` (1 = real, 0 = padding) where examples are padded.
Sums, not means, cross this interface, so that microbatches, devices and evaluation batches add up exactly.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import jax
import numpy as np
import optax
from numpy.typing import NDArray

from batchscale.spec.space import SearchSpace
from batchscale.spec.workload_name import WorkloadName

Batch = Mapping[str, jax.Array]
HostBatch = Mapping[str, NDArray[Any]]
Params = Any  # a pytree of arrays
ModelState = Any  # a pytree of arrays that training changes without gradients (batch norm statistics); may be empty
Metaparameters = Mapping[str, jax.Array]  # scalars; always array arguments of compiled programs, never constants


@dataclass(frozen=True)
class ArraySplit:
    """A split that fits in memory: it is put on the device once, and batches are gathered there."""

    arrays: HostBatch

    @property
    def num_examples(self) -> int:
        """The number of examples."""
        return len(next(iter(self.arrays.values())))


class IndexedSplit(ABC):
    """A split that is read example by example on the host: folders of images, Parquet files, text."""

    @property
    @abstractmethod
    def num_examples(self) -> int:
        """The number of examples."""

    @abstractmethod
    def read(self, indices: NDArray[np.int64], seeds: NDArray[np.int64] | None) -> HostBatch:
        """Return the examples at these indices (host). ``seeds`` drive random augmentation, one each; None: none.

        The result depends on the arguments alone, so that a resumed trial gets the same examples.
        """


@dataclass(frozen=True)
class SampledSplit:
    """Data without end or storage: a batch is drawn from a random key and stands for ``batch_size`` examples."""

    sample: Callable[[jax.Array, int], Batch]


Split = ArraySplit | IndexedSplit | SampledSplit


@dataclass(frozen=True)
class Dataset:
    """Splits named train, val and test, and ``prepare``, which turns stored arrays into the inputs of the model.

    ``input_shape`` and ``input_dtype`` describe one prepared example. ``num_outputs`` is the number of classes, labels
    or sub-words that a model must give scores for. ``tokens_per_example`` is None where examples differ or are no text.
    """

    name: str
    splits: Mapping[str, Split]
    prepare: Callable[[Batch], Batch]
    input_shape: tuple[int, ...]
    input_dtype: Any
    num_outputs: int
    tokens_per_example: int | None = None

    @property
    def num_train_examples(self) -> int | None:
        """The size of the training set; None for sampled data."""
        train = self.splits["train"]
        return None if isinstance(train, SampledSplit) else train.num_examples


class Apply(Protocol):
    """The forward pass: outputs (logits) for a whole batch of inputs, and the changed model state."""

    def __call__(
        self, params: Params, state: ModelState, inputs: jax.Array, *, train: bool, key: jax.Array
    ) -> tuple[jax.Array, ModelState]:
        """With ``train`` the key drives dropout; without, the result is deterministic and the state unchanged."""


@dataclass(frozen=True)
class Model:
    """A pair of pure functions. ``init`` returns parameters and model state for a random key.

    A changed model state must be an average over the examples of the batch, so that the example-weighted mean of the
    microbatches' states is the state of the whole batch. ``microbatch_multiple`` is the ghost batch size, where a
    microbatch must hold whole ghost batches to leave their statistics unchanged. ``precision`` names the type that the
    forward and backward pass compute in; parameters and outputs' losses are float32 always.
    """

    name: str
    init: Callable[[jax.Array], tuple[Params, ModelState]]
    apply: Apply
    microbatch_multiple: int = 1
    precision: str = "float32"


@dataclass(frozen=True)
class LossSum:
    """A loss summed over a batch, and the weight to divide it by (examples or tokens)."""

    total: jax.Array
    weight: jax.Array


Loss = Callable[[jax.Array, Batch, Metaparameters], LossSum]


@dataclass(frozen=True)
class Metric:
    """An evaluation metric as sums that add up over batches: ``value(measure(a) + measure(b))``.

    ``measure`` gets the outputs, the batch, and a 0/1 weight per example (0 for the padding of the last batch).
    """

    name: str
    maximize: bool
    measure: Callable[[jax.Array, Batch, jax.Array], Any]
    value: Callable[[Any], jax.Array]


Schedule = Callable[[jax.Array, Metaparameters], jax.Array]
"""The learning rate at a step (0 for the first)."""


@dataclass(frozen=True)
class Workload:
    """Everything that training needs. ``make_update`` is the optimizer with L2 penalty and gradient clipping."""

    name: WorkloadName
    dataset: Dataset
    model: Model
    loss: Loss
    metrics: tuple[Metric, ...]
    defaults: Mapping[str, float | None]
    space: Callable[[int], SearchSpace]
    make_update: Callable[[Metaparameters], optax.GradientTransformation]
