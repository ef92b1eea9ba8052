"""A language model that exists only on paper: its shape in a TOML file, and the work, memory and curve that follow.

Work: 6 operations per parameter and token, and 12 × layers × width × sequence length per token for attention (the
count of Chowdhery et al. 2022, appendix B, without a causal mask). Activations: 34 bytes per layer, token and channel
at 16 bits (Korthikanti et al. 2022, table 2, without stored attention scores), and two float32 copies of the logits.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from batchscale.atlas.published_laws import find_published
from batchscale.errors import PlanningError, one_line, suggest_names
from batchscale.planning.curve import CurvePoint, PlanCurve
from batchscale.planning.machines import read_toml_file
from batchscale.planning.memory import MemoryNeed
from batchscale.planning.work import BYTES_OF, StepWork

ACTIVATION_BYTES = 17  # per layer, token, channel and byte of the precision
LOGIT_BYTES = 8  # per token and word: the logits and their gradient in float32
PASSES_OVER_ACTIVATIONS = 3  # written once, read by the backward pass, and their gradients written
LAW_FACTOR = 2.0  # published laws of the critical batch size state no interval
LARGEST_BATCH = 2**22  # tokens of the largest batch of a curve without batch sizes

_Count = Annotated[int, Field(ge=1, le=10**7)]
_Tokens = Annotated[float, Field(gt=0, le=1e18, allow_inf_nan=False)]


class LanguageModel(BaseModel):
    """The keys of the file. ``parameters`` is needed only if the shape does not give it (12 × layers × width²)."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    name: Annotated[str, Field(min_length=1, max_length=120, pattern=r"^[^\x00-\x1f\x7f]+$")] = "language model"
    layers: _Count
    width: _Count
    heads: _Count
    sequence_length: _Count
    vocabulary: _Count
    feedforward_width: _Count | None = None
    parameters: Annotated[float, Field(gt=0, le=1e15, allow_inf_nan=False)] | None = None
    precision: Literal["float32", "tf32", "float16", "bfloat16", "float8"] = "bfloat16"
    optimizer: Literal["adam", "momentum", "sgd"] = "adam"
    tokens: _Tokens | None = None
    critical_batch_tokens: _Tokens | None = None
    critical_batch_tokens_low: _Tokens | None = None
    critical_batch_tokens_high: _Tokens | None = None
    batch_tokens: Annotated[list[_Tokens], Field(min_length=1, max_length=200)] | None = None

    @model_validator(mode="after")
    def _check(self) -> "LanguageModel":
        if self.width % self.heads:
            raise ValueError(f"width must be a multiple of heads. Found {self.width} and {self.heads}")
        if self.parameters is not None and not 1 / 3 <= self.parameters / self.shape_parameters <= 3:
            raise ValueError(
                f"parameters must be a count, such as 1_300_000_000, that fits the shape, which has "
                f"{self.shape_parameters:,.0f}. Found {self.parameters:,.0f}"
            )
        low, middle, high = (
            self.critical_batch_tokens_low,
            self.critical_batch_tokens,
            self.critical_batch_tokens_high,
        )
        ends = [value for value in (low, middle, high) if value is not None]
        if (middle is None and ends) or ends != sorted(ends):
            raise ValueError("critical_batch_tokens must lie between critical_batch_tokens_low and _high")
        if any(tokens < self.sequence_length for tokens in self.batch_tokens or ()):
            raise ValueError(f"batch_tokens must hold at least one sequence of {self.sequence_length:,} tokens")
        return self

    @property
    def shape_parameters(self) -> float:
        """Return the parameters that the shape has: attention, feed-forward layers and one table of words."""
        feedforward = self.feedforward_width or 4 * self.width
        layer = 4 * self.width**2 + 2 * self.width * feedforward
        return float(self.layers * layer + self.vocabulary * self.width)

    @property
    def count(self) -> float:
        """Return the number of parameters."""
        return self.parameters or self.shape_parameters

    @property
    def flops_per_token(self) -> float:
        """Return the operations of a token, forward and backward."""
        return 6 * self.count + 12 * self.layers * self.width * self.sequence_length

    def work(self) -> StepWork:
        """Return the work of a step; an example is a sequence."""
        need = self.memory()
        return StepWork(
            kind="language",
            precision=self.precision,
            flops_per_example=self.flops_per_token * self.sequence_length,
            bytes_per_example=PASSES_OVER_ACTIVATIONS * need.activations,
            parameters=self.count,
            bytes_per_pass=2 * need.weights + need.gradients,
            bytes_per_update=2 * need.optimizer + need.gradients + need.weights,
            memory=need,
        )

    def memory(self) -> MemoryNeed:
        """Return the memory of a step with one sequence on a device."""
        size = BYTES_OF[self.precision]
        master = 4 if size < 4 else 0
        moments = {"adam": 8, "momentum": 4, "sgd": 0}[self.optimizer]
        layer = ACTIVATION_BYTES * size * self.sequence_length * self.width
        logits = LOGIT_BYTES * self.sequence_length * self.vocabulary
        kept_input = size * self.sequence_length * self.width
        return MemoryNeed(
            weights=size * self.count,
            gradients=size * self.count,
            optimizer=(master + moments) * self.count,
            activations=self.layers * layer + logits,
            recomputed=self.layers * kept_input + layer + logits,
        )

    def curve(self) -> PlanCurve:
        """Return the steps that ``tokens`` need at each batch size, in sequences, by the critical batch size.

        A run that needs D tokens with small batches needs D (1 + B / B_crit) with batches of B tokens (McCandlish et
        al. 2018), so D / B + D / B_crit steps.
        """
        if self.tokens is None:
            raise PlanningError(
                "A plan without a curve needs tokens in the file of the model. Found none; add them, or pass a CURVE "
                "whose batch sizes count sequences."
            )
        source, *critical = self._critical(self.tokens)
        sequences = sorted({max(round(tokens / self.sequence_length), 1) for tokens in self._batches()})
        points = tuple(self._point(self.tokens, batch_size, critical) for batch_size in sequences)
        goal = f"the loss of {_short(self.tokens)} tokens with small batches"
        goal += f" (critical batch size {_short(critical[1] or 0)} tokens, {source})"
        return PlanCurve(points, goal=goal, tokens_per_example=self.sequence_length)

    def _critical(self, tokens: float) -> tuple[str, float | None, float | None, float | None]:
        """Return the critical batch size in tokens with its ends, and where it comes from."""
        if self.critical_batch_tokens is not None:
            ends = self.critical_batch_tokens_low, self.critical_batch_tokens_high
            return "given", ends[0], self.critical_batch_tokens, ends[1]
        law = next(law for law in find_published("b_crit") if law.value(tokens, self.count) is not None)
        middle = law.value(tokens, self.count) or 0.0
        source = f"predicted by {law.source}, within a factor of {LAW_FACTOR:g} assumed"
        return source, middle / LAW_FACTOR, middle, middle * LAW_FACTOR

    def _batches(self) -> list[float]:
        if self.batch_tokens:
            return list(self.batch_tokens)
        first = max(2**15, self.sequence_length)
        return [first * 2.0**i for i in range(max(round(math.log2(LARGEST_BATCH / first)), 0) + 1)]

    def _point(self, tokens: float, batch_size: int, critical: Sequence[float | None]) -> CurvePoint:
        batch = float(batch_size * self.sequence_length)

        def steps(at: float | None) -> float | None:
            return None if at is None else tokens / batch + tokens / at

        high, middle, low = (steps(end) for end in critical)
        assert middle is not None
        return CurvePoint(batch_size, middle, low, high, predicted=True)


def _short(count: float) -> str:
    """Return a large count in few characters.

    >>> _short(20e9), _short(1.5e12), _short(300e6)
    ('20 B', '1.5 T', '300 M')
    """
    for unit, power in (("T", 1e12), ("B", 1e9), ("M", 1e6)):
        if count >= power:
            return f"{count / power:.3g} {unit}"
    return f"{count:,.0f}"


def read_language_model(path: Path) -> LanguageModel:
    """Return the model of a TOML file.

    Raises:
        PlanningError: it cannot be read, or a value is not allowed; names the key.
    """
    data = read_toml_file(path, "a model")
    try:
        return LanguageModel.model_validate(data)
    except ValidationError as error:
        raise PlanningError(f"{one_line(path, 300)}: {_explain(error)}") from None


def _explain(error: ValidationError) -> str:
    problems = error.errors(include_url=False)
    problem = next((item for item in problems if item["type"] == "extra_forbidden"), problems[0])
    key = one_line(".".join(str(part) for part in problem["loc"]) or "the file", 60)
    if problem["type"] == "extra_forbidden":
        return f"unknown key '{key}'; {suggest_names(key, LanguageModel.model_fields)}"
    if problem["type"] == "missing":
        return f"key '{key}' is needed and missing."
    if problem["type"] == "value_error":
        return f"{problem['msg'].removeprefix('Value error, ')}."
    return f"key '{key}' {problem['msg'].removeprefix('Input ')}. Found {one_line(repr(problem['input']))}."
