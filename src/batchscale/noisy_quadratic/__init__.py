"""The noisy quadratic model: the problem, its exact expected loss, and the fewest steps to a goal. No jax here."""

from batchscale.noisy_quadratic.expected_loss import UpdateRule, closed_form_loss, closed_form_steps_to_loss
from batchscale.noisy_quadratic.optimum import BestSteps, best_steps_to_loss, steps_to_loss
from batchscale.noisy_quadratic.problem import NoisyQuadratic, Spectrum, parse_problem

__all__ = [
    "BestSteps",
    "NoisyQuadratic",
    "Spectrum",
    "UpdateRule",
    "best_steps_to_loss",
    "closed_form_loss",
    "closed_form_steps_to_loss",
    "parse_problem",
    "steps_to_loss",
]
