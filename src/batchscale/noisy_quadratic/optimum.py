"""Steps to a loss of the noisy quadratic model without stepping through them, and the learning rate of the fewest.

With plain SGD every coordinate has a geometric closed form: with β = (1 - αh)², E[θ²] after t steps is
β^t·E[θ₀²] + (1 - β^t)·s*, and s* = α²·(c/B)/(1 - β). With momentum the second
moments S of (θ, v) follow S' = A·S·Aᵀ + N; two steps are A² and N + A·N·Aᵀ, and so on by doubling. All terms of these
sums are positive, so nothing cancels. Either way the step that passes a goal is bisected.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from batchscale.noisy_quadratic.expected_loss import UpdateRule
from batchscale.noisy_quadratic.problem import Floats, NoisyQuadratic, Spectrum

MAX_STEPS = 10**11
MOMENTA = (0.0, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999)
_PARTS = 8  # the stride is this part of the steps so far, where the expected loss need not fall all the way
_HALVINGS = 60  # of the learning rate, from the largest stable one
_BLOCK = 256  # steps with momentum whose losses are calculated at once
_RIPPLES = 32 * _BLOCK  # the expected loss can ripple up to here with momentum, so every step is looked at
_RISES = 4  # halvings in a row without fewer steps that end the search
_SECTIONS = 20  # golden sections around the best halving: to 1e-4 of the learning rate, where steps are flat
_NEAR = 33  # learning rates around the best one, at which ripples are looked at
_GOLDEN = (math.sqrt(5) - 1) / 2


@dataclass(frozen=True)
class BestSteps:
    """The fewest steps to a goal over fixed learning rates (and momenta), and where they are reached."""

    steps: int
    learning_rate: float
    momentum: float


def steps_to_loss(
    problem: NoisyQuadratic | Spectrum,
    rule: UpdateRule,
    batch_size: float,
    goal: float,
    max_steps: int = MAX_STEPS,
    guard: float = 0.0,
) -> int | None:
    """Return the first step after which the expected loss is below the goal; None if it is not within ``max_steps``.

    Equal to ``closed_form_steps_to_loss`` for a constant learning rate, in logarithmic time. Beyond 8,192 steps, where
    the expected loss falls below the goal for less than an eighth of the steps so far, a later passage is returned.

    Args:
        problem: The problem or its spectrum.
        rule: The optimizer; its learning rate is one number.
        batch_size: Examples per step.
        goal: The loss to pass.
        max_steps: The most steps.
        guard: Added to 1 - β in the stationary variance. 0 is exact; 1e-8 is what the published code of Zhang et al.
            adds, which moves their steps at the smallest batch sizes by up to 0.05 %.

    >>> steps_to_loss(NoisyQuadratic(dimension=1, noise=0.0), UpdateRule("sgd", 0.5), 1, goal=0.1)
    2
    """
    passage = _passage(_spectrum(problem), rule, batch_size, goal, max_steps, guard, _RIPPLES)
    return None if passage == math.inf else math.ceil(passage)


def best_steps_to_loss(
    problem: NoisyQuadratic | Spectrum,
    batch_size: float,
    goal: float,
    optimizer: str = "sgd",
    learning_rates: Sequence[float] | None = None,
    momenta: Sequence[float] = MOMENTA,
    guard: float = 0.0,
) -> BestSteps | None:
    """Return the fewest steps to a goal with the best fixed learning rate; None if no learning rate reaches it.

    Args:
        problem: The problem or its spectrum.
        batch_size: Examples per step.
        goal: The loss to pass.
        optimizer: sgd, momentum or nesterov_momentum.
        learning_rates: The ones to choose from; None: all stable ones, by golden section.
        momenta: The momenta to choose from, for the two rules that have one.
        guard: As in ``steps_to_loss``.
    """
    spectrum = _spectrum(problem)
    if spectrum.initial_loss < goal:
        return BestSteps(0, 0.0, 0.0)

    def passage(rate: float, momentum: float, ripples: int = _RIPPLES) -> float:
        rule = UpdateRule(optimizer, rate, momentum)
        return _passage(spectrum, rule, batch_size, goal, MAX_STEPS, guard, ripples)

    best: tuple[float, float, float] = (math.inf, 0.0, 0.0)
    for gamma in (0.0,) if optimizer == "sgd" else momenta:
        if learning_rates is not None:
            steps, rate = min((passage(float(rate), gamma), float(rate)) for rate in learning_rates)
        else:
            largest = _largest_rate(spectrum, optimizer, gamma)
            steps, rate = _minimize(partial(passage, momentum=gamma, ripples=0), largest)
        best = min(best, (steps, rate, gamma))
    if best[0] < math.inf and learning_rates is None and optimizer != "sgd":
        rates = best[1] * np.geomspace(0.5, 2, _NEAR)
        steps, rate = min((passage(float(rate), best[2]), float(rate)) for rate in rates)
        best = (steps, rate, best[2])
    return None if best[0] == math.inf else BestSteps(math.ceil(best[0]), best[1], best[2])


def _spectrum(problem: NoisyQuadratic | Spectrum) -> Spectrum:
    return problem.spectrum if isinstance(problem, NoisyQuadratic) else problem


def _largest_rate(spectrum: Spectrum, optimizer: str, momentum: float) -> float:
    """Return the learning rate at which the largest curvature begins to diverge."""
    factor = 1 + 2 * momentum if optimizer == "nesterov_momentum" else 1.0
    return 2 * (1 + momentum) / factor / float(spectrum.curvatures.max())


def _minimize(passage: Callable[[float], float], largest: float) -> tuple[float, float]:
    """Return the smallest value over learning rates below the largest, and its learning rate."""
    best, rises = (math.inf, largest), 0
    for halving in range(_HALVINGS):
        rate = largest * 0.5**halving * (1 - 1e-9)
        steps = passage(rate)
        rises = 0 if steps < best[0] or steps == math.inf else rises + 1
        best = min(best, (steps, rate))
        if rises >= _RISES:
            break
    if best[0] == math.inf:
        return best
    low, high = math.log(best[1] / 2), math.log(min(best[1] * 2, largest * (1 - 1e-9)))
    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_left, at_right = passage(math.exp(left)), passage(math.exp(right))
    for _ in range(_SECTIONS):
        best = min(best, (at_left, math.exp(left)), (at_right, math.exp(right)))
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - _GOLDEN * (high - low)
            at_left = passage(math.exp(left))
        else:
            low, left, at_left = left, right, at_right
            right = low + _GOLDEN * (high - low)
            at_right = passage(math.exp(right))
    return min(best, (at_left, math.exp(left)), (at_right, math.exp(right)))


def _passage(
    spectrum: Spectrum, rule: UpdateRule, batch_size: float, goal: float, max_steps: int, guard: float, ripples: int
) -> float:
    """Return where the expected loss passes the goal, between two steps by interpolation; inf if it does not.

    With momentum, each of the first ``ripples`` steps is looked at.
    """
    if spectrum.initial_loss < goal:
        return 0.0
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        if rule.velocity_decay == 0:
            return _sgd_passage(spectrum, rule.rate(0), batch_size, goal, max_steps, guard)
        return _momentum_passage(spectrum, rule, batch_size, goal, max_steps, ripples)


def _sgd_passage(
    spectrum: Spectrum, rate: float, batch_size: float, goal: float, max_steps: int, guard: float
) -> float:
    h, variance = spectrum.curvatures, rate * rate * spectrum.noise / batch_size
    weight = 0.5 * spectrum.counts * h
    share = rate * h
    log_beta = 2 * np.where(share < 0.5, np.log1p(-np.minimum(share, 0.5)), np.log(np.abs(1 - share)))
    missing = share * (2 - share) + guard  # 1 - β, without cancellation

    def loss(steps: float) -> float:
        rest = -np.expm1(steps * log_beta)
        grown = np.where(missing != 0, rest / np.where(missing != 0, missing, 1.0), steps)
        return float(weight @ (spectrum.start * (1 - rest) + variance * grown))

    falls = bool(np.all(missing > 0) and np.all(spectrum.start * missing >= variance))
    if falls and float(weight @ (variance / missing)) >= goal:
        return math.inf
    low = 0
    while low < max_steps:
        stride = max(low if falls else low // _PARTS, 1)
        high = min(low + stride, max_steps)
        value = loss(high)
        if value < goal:
            return _bisect(loss, low, high, goal)
        if not math.isfinite(value):
            return math.inf
        low = high
    return math.inf


def _bisect(loss: Callable[[float], float], low: int, high: int, goal: float) -> float:
    """Return the passage between two steps, of which the second is below the goal."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if loss(middle) < goal else (middle, high)
    return _between(low, loss(low), loss(high), goal, high)


def _between(low: int, before: float, after: float, goal: float, max_steps: int) -> float:
    """Return the place in (low, low + 1] where a straight line passes the goal; inf beyond the most steps."""
    return low + max((before - goal) / (before - after), 1e-9) if low < max_steps else math.inf


def _momentum_passage(
    spectrum: Spectrum, rule: UpdateRule, batch_size: float, goal: float, max_steps: int, ripples: int
) -> float:
    weight = 0.5 * spectrum.counts * spectrum.curvatures
    powers = [_transition(spectrum, rule, batch_size)]
    state = np.zeros((len(weight), 2, 2))
    state[:, 0, 0] = spectrum.start
    block = _Block(powers[0], weight, _BLOCK if ripples else 1)
    step = 0
    while step < min(ripples, max_steps + 1):
        losses = block.losses(state)
        below = np.flatnonzero(losses < goal)
        if len(below):
            place = int(below[0])
            before = losses[place - 1] if place else float(weight @ state[:, 0, 0])
            return _between(step + place, float(before), float(losses[place]), goal, max_steps)
        if not np.isfinite(losses[-1]):
            return math.inf
        state, step = _advance(block.power, state), step + _BLOCK
    while step <= max_steps:
        exponent = max(step.bit_length() - 3, 0)  # the stride is an eighth to a quarter of the steps so far
        while len(powers) <= exponent:
            matrix, noise = powers[-1]
            powers.append((matrix @ matrix, _advance(powers[-1], noise)))
        following = _advance(powers[exponent], state)
        value = float(weight @ following[:, 0, 0])
        if value < goal:
            return _descend(powers[: exponent + 1], state, step, weight, goal)
        if not math.isfinite(value):
            return math.inf
        state, step = following, step + 2**exponent
    return math.inf


def _descend(powers: "Sequence[_Power]", state: Floats, step: int, weight: Floats, goal: float) -> float:
    """Return the passage, given the state at a step above the goal; the last power of the transition passes it."""
    for exponent in range(len(powers) - 2, -1, -1):
        following = _advance(powers[exponent], state)
        if float(weight @ following[:, 0, 0]) >= goal:
            state, step = following, step + 2**exponent
    after = _advance(powers[0], state)
    return _between(step, float(weight @ state[:, 0, 0]), float(weight @ after[:, 0, 0]), goal, MAX_STEPS)


_Power = tuple[Floats, Floats]  # A and N of a number of steps, per coordinate


class _Block:
    """The expected loss after each of the next ``count`` steps, as a linear map of the moments of (θ, v)."""

    def __init__(self, power: _Power, weight: Floats, count: int) -> None:
        self.power = power
        rows = power[0][None, :, 0, :]  # the first row of A, A², … per coordinate
        noise = power[1][None, :, 0, 0]
        while len(rows) < count:
            matrix, added = self.power
            first, second = rows[..., 0], rows[..., 1]
            gained = first**2 * added[:, 0, 0] + 2 * first * second * added[:, 0, 1] + second**2 * added[:, 1, 1]
            moved = [first * matrix[:, 0, j] + second * matrix[:, 1, j] for j in (0, 1)]
            rows = np.concatenate([rows, np.stack(moved, axis=-1)])
            noise = np.concatenate([noise, noise + gained])
            self.power = (matrix @ matrix, _advance(self.power, added))
        first, second = rows[..., 0], rows[..., 1]
        self._map = np.concatenate([weight * first**2, weight * 2 * first * second, weight * second**2], axis=1)
        self._noise = noise @ weight

    def losses(self, state: Floats) -> Floats:
        """Return the expected loss after each step of the block."""
        moments = np.concatenate([state[:, 0, 0], state[:, 0, 1], state[:, 1, 1]])
        losses: Floats = self._map @ moments + self._noise
        return losses


def _advance(power: _Power, state: Floats) -> Floats:
    matrix, noise = power
    moved: Floats = matrix @ state @ matrix.transpose(0, 2, 1) + noise
    return moved


def _transition(spectrum: Spectrum, rule: UpdateRule, batch_size: float) -> _Power:
    """Return A and N of one step: θ' = p·θ + q·v - r·ε and v' = h·θ + γ·v + ε, as in ``expected_loss``."""
    h, gamma = spectrum.curvatures, rule.velocity_decay
    a, b = rule.weights(rule.rate(0))
    matrix = np.zeros((len(h), 2, 2))
    matrix[:, 0, 0], matrix[:, 0, 1] = 1 - (a + b) * h, -b * gamma
    matrix[:, 1, 0], matrix[:, 1, 1] = h, gamma
    direction = np.array([-(a + b), 1.0])
    return matrix, np.outer(direction, direction) * (spectrum.noise / batch_size)[:, None, None]
