"""Measure the gradient noise scale in any PyTorch training loop, from gradients that it computes anyway.

One file, standard library and PyTorch only: import it from batchscale, or copy it beside your script. A step must have
at least two parts: backward passes that accumulate, or processes of DistributedDataParallel. Three lines::

    noise = GradientNoise(model)                  # once, after the model is wrapped
    noise.step(examples_per_part)                 # after the last backward, before unscaling, clipping and optimizer
    print(noise.estimate())                       # whenever you like

The noise scale is tr Σ / |G|²: G is the gradient of the mean loss, Σ the covariance of the gradients of single examples
(McCandlish et al., 2018). A hook on every parameter reads the norm of each part's own gradient, before it is added to
others and before DDP averages it; `step` reads the norm of the whole batch's. docs/noise-scale.md has the formulas.
Not measured here: sharded parameters (FSDP, tensor parallelism), and norms of signs and of singular values, which need
copies of all gradients (batchscale's own engine has them). Python 3.10 or later.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import distributed, nn

MAX_BLOCKS = 1024
MIN_BLOCKS = 5
_SHARDED = ("FSDP", "FullyShardedDataParallel")
_Z = 1.959963984540054  # the normal quantile of a 95 % interval


class NoiseEstimate(NamedTuple):
    """A noise scale in examples with its 95 % interval; None where it is not resolved, and then ``reason`` says why."""

    noise_scale: float | None
    standard_error: float | None
    low: float | None
    high: float | None
    gradient_norm_squared: float
    noise_trace: float
    steps: int
    reason: str = ""

    def __str__(self) -> str:
        """Return one line."""
        if self.noise_scale is None or self.standard_error is None:
            bound = "" if self.low is None else f" It is at least {self.low:.3g}."
            return f"gradient noise scale: not resolved after {self.steps} steps. {self.reason}{bound}"
        interval = f"95 % interval {self.low:.3g} to {self.high:.3g}"
        return f"gradient noise scale: {self.noise_scale:.3g} ± {self.standard_error:.2g} examples ({interval})"


class GradientNoise:
    """Running averages of |G|² and tr Σ over the steps of a training.

    Args:
        model: The module, or its wrapper by DistributedDataParallel; parameters that are frozen are left out.
        optimizer: An Adam of PyTorch, to measure norms in the scale 1 / (√v + ε) of its second moments v as well.
        block_steps: The steps that are averaged before steps count as independent of each other.

    Raises:
        ValueError: Parameters are sharded.
    """

    def __init__(self, model: nn.Module, optimizer: Any = None, block_steps: int = 16) -> None:
        names = {type(module).__name__ for module in model.modules() if type(module).__name__.startswith(_SHARDED)}
        names |= {type(p).__name__ for p in model.parameters() if hasattr(p, "placements")}  # DTensor
        if names:
            raise ValueError(
                "GradientNoise needs whole gradients in every process, as DistributedDataParallel has them. Found "
                f"sharded parameters ({', '.join(sorted(names))}): measure a training of the same model without them."
            )
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        self._optimizer, self._block_steps = optimizer, block_steps
        groups = [] if optimizer is None else optimizer.param_groups
        self._groups = {parameter: group for group in groups for parameter in group["params"]}
        self._parts: list[list[torch.Tensor]] = []  # of this step: squared norm, and the same in Adam's scale
        self._calls: dict[int, int] = {}
        self._blocks: list[list[float]] = []  # steps, |G|², tr Σ, squared norms of big and small; the last is open
        self._scaled_blocks: list[list[float]] = []
        self._reported = self._scaled_reported = 0.0, 0.0, 0.0
        self._shares = 1
        self.skipped_steps = 0
        self._handles = [p.register_hook(self._make_hook(number, p)) for number, p in enumerate(self._parameters)]

    def close(self) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()

    def step(self, examples_per_part: int | Sequence[int], loss_scale: float = 1.0) -> None:
        """Add a step. Call it after the last backward of the step, before clipping, unscaling and the optimizer.

        Args:
            examples_per_part: The examples of each backward pass of this process: a number, or one for each pass.
            loss_scale: The factor that a GradScaler has on the loss; it changes |G|² and tr Σ, not their ratio.
        """
        parts, self._parts, self._calls = self._parts, [], {}
        sizes = [examples_per_part] * len(parts) if isinstance(examples_per_part, int) else list(examples_per_part)
        if len(sizes) != len(parts) or not all(size > 0 for size in sizes):
            raise ValueError(
                f"step needs the examples of each backward pass of the step, at least 1 each: {len(parts)} passes were "
                f"seen. Found {examples_per_part}. Call step once per optimizer step, with one backward per part."
            )
        if not parts:
            raise ValueError(
                "step needs gradients: no backward pass reached the model's parameters since the step before. Found "
                "none; make GradientNoise from the model that is trained, after it is wrapped."
            )
        scales = self._scales()
        gradients = [
            (p.grad, scale) for p, scale in zip(self._parameters, scales or [None] * len(self._parameters), strict=True)
        ]
        big = _stack([_squares(g, s) for g, s in gradients if g is not None])
        total = sum(sizes)
        # with equal weights of examples, a part's own gradient is what reached the hook times total / size
        weights = torch.tensor([(total / size) ** 2 for size in sizes], dtype=torch.float64, device=big.device)
        norms = torch.stack([torch.stack(part) for part in parts])
        sums = torch.cat([(weights[:, None] * norms).sum(0), weights.new_tensor([len(sizes), _inverse(sizes), total])])
        if distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1:
            distributed.all_reduce(sums)
        values = torch.cat([sums, big]).tolist()
        self._add(values, scaled=scales is not None, factor=loss_scale**-2)

    def estimate(self, last_steps: int | None = None, scaled: bool = False) -> NoiseEstimate:
        """Return the noise scale over the last steps (all if None); ``scaled`` is that in the scale of Adam."""
        blocks = self._scaled_blocks if scaled else self._blocks
        chosen, steps = [], 0
        for block in reversed(blocks):
            if last_steps is not None and steps >= last_steps:
                break
            chosen.append(block)
            steps += int(block[0])
        return _estimate(chosen, steps, self._shares)

    def metrics(self) -> dict[str, float]:
        """Return the averages since the last call, as columns of batchscale's records: report them with the others."""
        columns: dict[str, float] = {}
        for name, blocks, attribute in (
            ("train/gradient_norm_squared train/gradient_noise_trace", self._blocks, "_reported"),
            (
                "train/preconditioned_norm_squared train/preconditioned_noise_trace",
                self._scaled_blocks,
                "_scaled_reported",
            ),
        ):
            if attribute == "_scaled_reported" and self._optimizer is None:
                continue
            totals = tuple(math.fsum(block[i] for block in blocks) for i in range(3))
            new = [now - before for now, before in zip(totals, getattr(self, attribute), strict=True)]
            setattr(self, attribute, totals)
            columns.update((key, new[i] / new[0] if new[0] else math.nan) for i, key in enumerate(name.split(), 1))
        return columns

    def state_dict(self) -> dict[str, Any]:
        """Return all averages, for a checkpoint."""
        names = (
            "_blocks",
            "_scaled_blocks",
            "_reported",
            "_scaled_reported",
            "_block_steps",
            "_shares",
            "skipped_steps",
        )
        return {name.strip("_"): getattr(self, name) for name in names}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a checkpoint."""
        self._blocks, self._scaled_blocks = ([list(b) for b in state[name]] for name in ("blocks", "scaled_blocks"))
        self._reported, self._scaled_reported = tuple(state["reported"]), tuple(state["scaled_reported"])
        self._block_steps, self._shares = state["block_steps"], state["shares"]
        self.skipped_steps = state["skipped_steps"]

    def _make_hook(self, number: int, parameter: torch.Tensor) -> Callable[[torch.Tensor], None]:
        def hook(gradient: torch.Tensor) -> None:
            part = self._calls[number] = self._calls.get(number, -1) + 1
            if part == len(self._parts):
                zero = torch.zeros((), dtype=torch.float64, device=gradient.device)
                self._parts.append([zero, zero.clone()] if self._optimizer is not None else [zero])
            norms = _squares(gradient, self._scale(parameter))
            for i, norm in enumerate(norms[: len(self._parts[part])]):
                self._parts[part][i] = self._parts[part][i] + norm.to(self._parts[part][i].device)

        return hook

    def _scale(self, parameter: torch.Tensor) -> torch.Tensor | None:
        """Return 1 / (√v + ε) of a parameter as Adam divides by it; None before its first step."""
        state = {} if self._optimizer is None else self._optimizer.state.get(parameter, {})
        if "exp_avg_sq" not in state:
            return None
        group = self._groups[parameter]
        correction = 1 - group["betas"][1] ** float(state["step"])
        return 1 / ((state["exp_avg_sq"] / correction).sqrt() + group["eps"])

    def _scales(self) -> list[torch.Tensor] | None:
        scales = [self._scale(p) for p in self._parameters]
        return None if any(scale is None for scale in scales) else scales

    def _add(self, values: list[float], scaled: bool, factor: float) -> None:
        """Add a step: the sums over all parts of all processes, and the norms of the whole batch."""
        kinds = 1 if self._optimizer is None else 2
        small, (count, inverse, total), big = values[:kinds], values[kinds : kinds + 3], values[kinds + 3 :]
        if not (math.isfinite(small[0]) and math.isfinite(big[0])):
            self.skipped_steps += 1  # an overflow of half precision, which the optimizer skips too
            return
        self._shares = max(self._shares, round(count))
        for kind, blocks in enumerate((self._blocks, self._scaled_blocks)[: 1 + scaled]):
            _append(
                blocks, _split(small[kind] / count, big[kind], inverse / count, 1 / total, factor), self._block_steps
            )
            if len(blocks) > MAX_BLOCKS:
                blocks[:] = [
                    [sum(pair) for pair in zip(*blocks[i : i + 2], strict=True)] for i in range(0, len(blocks), 2)
                ]
                self._block_steps *= 2 if kind == 0 else 1


def _squares(gradient: torch.Tensor, scale: torch.Tensor | None) -> list[torch.Tensor]:
    """Return the squared norm, and that in a scale, in double precision: a half-precision sum would overflow."""
    values = gradient.detach().to(torch.float32)
    squares = values * values
    whole = squares.sum(dtype=torch.float64)
    return [whole, (squares * scale).sum(dtype=torch.float64) if scale is not None else whole * math.nan]


def _stack(pairs: list[list[torch.Tensor]]) -> torch.Tensor:
    return torch.stack([torch.stack([p.to(pairs[0][0].device) for p in pair]) for pair in pairs]).sum(0)


def _inverse(sizes: Sequence[int]) -> float:
    return math.fsum(1 / size for size in sizes)


def _split(small: float, big: float, small_inverse: float, big_inverse: float, factor: float) -> list[float]:
    """Return 1 step, |G|² and tr Σ from the squared norms of parts and of the batch, and these norms."""
    if small_inverse <= big_inverse:
        return [1, math.nan, math.nan, big * factor, small * factor]
    trace = (small - big) / (small_inverse - big_inverse)
    return [1, (big - trace * big_inverse) * factor, trace * factor, big * factor, small * factor]


def _append(blocks: list[list[float]], values: list[float], block_steps: int) -> None:
    if blocks and blocks[-1][0] < block_steps:
        blocks[-1] = [old + new for old, new in zip(blocks[-1], values, strict=True)]
    else:
        blocks.append(values)


def _estimate(blocks: list[list[float]], steps: int, shares: int) -> NoiseEstimate:
    """Return the ratio of averages with Fieller's interval and the jackknife's standard error, over blocks of steps."""
    sums = [math.fsum(block[i] for block in blocks) for i in range(5)]
    if not steps or math.isnan(sums[1]):
        reason = "A step needs at least two parts: accumulate two backward passes, or train on two processes."
        return NoiseEstimate(None, None, None, None, math.nan, math.nan, steps, reason)
    signal, noise, big, small = (total / steps for total in sums[1:])

    def unresolved(reason: str, low: float | None = None) -> NoiseEstimate:
        return NoiseEstimate(None, None, low, None, signal, noise, steps, reason)

    if big > small * (1 + 1e-3):
        reason = f"The gradients are not consistent: the batch has a squared norm {big / small:.3g} times that of its"
        return unresolved(f"{reason} parts, and a mean cannot be longer than its parts. Run self_test.")
    if len(blocks) < MIN_BLOCKS:
        return unresolved(f"{MIN_BLOCKS} blocks of steps are needed for an interval; there are {len(blocks)}.")
    k = len(blocks)
    d = [(block[1] - signal * block[0], block[2] - noise * block[0]) for block in blocks]
    ss, sn, nn_ = (k / (k - 1) * math.fsum(x[i] * x[j] for x in d) / steps**2 for i, j in ((0, 0), (0, 1), (1, 1)))
    t = _student(k - 1) ** 2
    a, b, c = signal**2 - t * ss, signal * noise - t * sn, noise**2 - t * nn_
    if big * shares < small and c > 0 and (big * shares / small) < 0.5:
        reason = (
            f"The gradients are not consistent: the batch has a squared norm {small / big:.3g} times below its parts'"
        )
        return unresolved(f"{reason}, and noise alone makes it at most {shares} times. Run self_test.")
    if noise <= 0:
        return unresolved("The gradients of the parts do not differ measurably.")
    if a <= 0 or signal <= 0:
        bounded = a < 0 < c and b * b > a * c
        low = (b - math.sqrt(b * b - a * c)) / a if bounded else None
        return unresolved("The mean gradient cannot be told from zero beside its noise: train more steps.", low)
    root = math.sqrt(max(b * b - a * c, 0.0))
    left_out = [(sums[2] - block[2]) / (sums[1] - block[1]) for block in blocks]
    mean = math.fsum(left_out) / k
    error = math.sqrt((k - 1) / k * math.fsum((value - mean) ** 2 for value in left_out))
    return NoiseEstimate(noise / signal, error, max((b - root) / a, 0.0), (b + root) / a, signal, noise, steps)


def _student(freedom: int) -> float:
    """Return the quantile of Student's law of a 95 % interval, by its expansion around the normal one."""
    z = _Z
    terms = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96, (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + math.fsum(term / freedom**power for power, term in enumerate(terms, 1))


# --- the self-test -------------------------------------------------------------------------------------------


class KnownQuadratic(nn.Module):
    """A model whose gradients are known: ½|θ - x|² of an example x, so that a mean loss has the gradient θ - mean x."""

    def __init__(self, dimension: int = 16, distance: float = 100.0) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.full((dimension,), distance / math.sqrt(dimension)))

    def forward(self, examples: torch.Tensor) -> torch.Tensor:
        """Return the loss of each example."""
        return 0.5 * ((self.theta - examples) ** 2).sum(dim=1)


TrainStep = Callable[[nn.Module, Sequence[torch.Tensor]], Any]


def self_test(train_step: TrainStep, examples_per_part: int = 4, parts: int = 4, wrap: Any = None) -> list[str]:
    """Run one step of a trainer on a known quadratic; return what is inconsistent, in sentences: none if all is well.

    Args:
        train_step: Your step: it gets a model that returns the loss of each example, and the parts of a batch. It
            computes the losses, calls backward for each part as your trainer does, and returns the gradient norm that
            your trainer reports (None if it reports none). It must not change the parameters.
        examples_per_part: The examples of each part.
        parts: The number of parts of this process.
        wrap: What wraps the model, as DistributedDataParallel.
    """
    world = distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1
    rank = distributed.get_rank() if world > 1 else 0
    model = KnownQuadratic()
    wrapped = model if wrap is None else wrap(model)
    generator = torch.Generator().manual_seed(0)
    batch = torch.randn(world, parts, examples_per_part, 16, generator=generator)
    noise = GradientNoise(wrapped)
    reported = train_step(wrapped, [part.to(model.theta.device) for part in batch[rank]])
    theta = model.theta.detach().cpu()
    big = float((theta - batch.mean(dim=(0, 1, 2))).norm())
    small = float((theta - batch[rank].mean(dim=1)).square().sum(-1).mean().sqrt())
    passes = len(noise._parts)
    problems = []
    if passes != parts:
        problems.append(f"A step must have one backward pass for each of its {parts} parts. Found {passes}.")
    else:
        squared = float(sum(part[0] for part in noise._parts)) / parts
        factors = {parts: "the number of parts", examples_per_part: "the examples of a part", world: "the processes"}
        found = model.theta.grad
        batch_norm = math.nan if found is None else float(found.norm())
        checks = [("The gradient norm of the batch", batch_norm, big)]
        checks += [("The gradient norm of its parts", math.sqrt(squared) * parts, small)]
        checks += [] if reported is None else [("The norm that the trainer reports", float(reported), big)]
        problems += [_compare(name, value, known, factors) for name, value, known in checks if not _near(value, known)]
    noise.close()
    for problem in problems:
        sys.stderr.write(f"gradient noise self-test: {problem}\n")
    return problems


def _near(value: float, known: float) -> bool:
    return abs(value - known) <= 1e-3 * known


def _compare(name: str, value: float, known: float, factors: Mapping[int, str]) -> str:
    ratio = value / known
    products = {a * b: f"{factors[a]} times {factors[b]}" for a in factors for b in factors if a < b}
    for factor, cause in {**products, **factors}.items():
        if factor > 1 and _near(ratio, factor):
            return (
                f"{name} is {factor} times the known one, {cause}: a sum stands where a mean should, or is not divided."
            )
        if factor > 1 and _near(ratio, 1 / factor):
            return f"{name} is 1/{factor} of the known one, {cause}: it is divided once too often."
    hint = ": was it clipped before it was read?" if ratio < 1 else "."
    return f"{name} is {ratio:.4g} times the known one{hint}"
