"""Published laws and rules for batch size, learning rate and weight decay of language models, with their protocols.

Batch sizes are in tokens. A law without a scale is known by its exponents only, and predicts nothing by itself.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class PublishedLaw:
    """A law, value = scale · tokens^α · parameters^β.

    Attributes:
        name: The short name.
        quantity: b_opt, b_crit or learning_rate.
        formula: As published.
        scale: c; None where only exponents are given.
        exponents: α and β by predictor.
        source: Authors, year and number of the paper, or the program.
        protocol: What was measured, how, and on what.
    """

    name: str
    quantity: str
    formula: str
    scale: float | None
    exponents: Mapping[str, float]
    source: str
    protocol: str

    def value(self, tokens: float, parameters: float | None = None) -> float | None:
        """Return the value for a planned run; None where the law has no scale, or needs parameters that are missing."""
        values = {"tokens": tokens, "parameters": parameters}
        if self.scale is None or any(values[name] is None for name in self.exponents):
            return None
        logs = (exponent * math.log(values[name] or 1.0) for name, exponent in self.exponents.items())
        return self.scale * math.exp(sum(logs))


_STEP_LAW = "Li et al. 2025, Predictable Scale: Part I, Step Law, arXiv 2503.04715"
_POWER_LINES = "Bergsma et al. 2025, Power Lines, arXiv 2505.13738"
_DEEPSEEK = "DeepSeek-AI 2024, DeepSeek LLM, arXiv 2401.02954"
_SEQUENCE = 2048  # tokens of a sequence in Power Lines
_FLOPS = 6.0  # per parameter and token
# nanochat: B_ref at the horizon of its model of depth 12: 12 tokens for each of 12·12·768² + 768·32,768 parameters
NANOCHAT_TOKENS = 12 * (12 * 12 * 768**2 + 768 * 32768)
NANOCHAT_BATCH = 2**19

PUBLISHED = (
    PublishedLaw(
        "Step Law",
        "b_opt",
        "B = 0.58 D^0.571",
        0.58,
        {"tokens": 0.571},
        _STEP_LAW,
        "lowest smoothed final loss over a grid of batch size and learning rate, AdamW, dense models up to 1 B",
    ),
    PublishedLaw(
        "Power Lines",
        "b_opt",
        "B = 0.0306 D^0.383 sequences of 2,048",
        0.0306 * _SEQUENCE,
        {"tokens": 0.383},
        _POWER_LINES,
        "lowest final loss at fixed tokens, AdamW with μP, weight decay tuned by its time scale, 111 M to 3.3 B",
    ),
    PublishedLaw(
        "nanochat",
        "b_opt",
        "B = 2^19 (D/D_ref)^0.383",
        NANOCHAT_BATCH / NANOCHAT_TOKENS**0.383,
        {"tokens": 0.383},
        "karpathy/nanochat, scripts/base_train.py, July 2026 (exponent of Power Lines, reference measured at depth 12)",
        "Muon and AdamW; D_ref = 1.32 B tokens, 12 per parameter of the model of depth 12; rounded to a power of 2",
    ),
    PublishedLaw(
        "DeepSeek",
        "b_opt",
        "B = 0.2920 C^0.3271, C = 6 N D",
        0.2920 * _FLOPS**0.3271,
        {"tokens": 0.3271, "parameters": 0.3271},
        _DEEPSEEK,
        "near-optimal losses of small compute budgets, multi-step schedule, tokens at the compute optimum only",
    ),
    PublishedLaw(
        "Power Lines",
        "b_crit",
        "B_crit = 0.0471 D^0.462 sequences of 2,048",
        0.0471 * _SEQUENCE,
        {"tokens": 0.462},
        _POWER_LINES,
        "hyperbola of tokens and steps to a loss, between budgets at fixed batch sizes",
    ),
    PublishedLaw(
        "Zhang et al.",
        "b_crit",
        "CBS ∝ D^0.47",
        None,
        {"tokens": 0.47},
        "Zhang et al. 2024, How Does Critical Batch Size Scale in Pre-training?, arXiv 2410.21676",
        "20 % more steps than perfect scaling, constant rate with averaged weights, Adam, 85 M to 1.2 B on C4",
    ),
    PublishedLaw(
        "Step Law",
        "learning_rate",
        "η = 1.79 N^-0.713 D^0.307",
        1.79,
        {"tokens": 0.307, "parameters": -0.713},
        _STEP_LAW,
        "as its law of batch size; N without embeddings; cosine to a fixed last rate of 1e-5",
    ),
    PublishedLaw(
        "DeepSeek",
        "learning_rate",
        "η = 0.3118 C^-0.1250, C = 6 N D",
        0.3118 * _FLOPS**-0.1250,
        {"tokens": -0.1250, "parameters": -0.1250},
        _DEEPSEEK,
        "as its law of batch size",
    ),
)


def find_published(quantity: str) -> list[PublishedLaw]:
    """Return the published laws of a quantity."""
    return [law for law in PUBLISHED if law.quantity == quantity]
