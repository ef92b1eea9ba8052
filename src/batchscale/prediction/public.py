"""Predictions from public curves and published laws: nothing is trained.

The nearest workloads of the atlas give the range of their critical batch sizes. Published laws of language models give
one from the tokens of the planned training, far below the tokens that they were measured at.
"""

from collections.abc import Sequence
from dataclasses import replace

from batchscale.analysis.intervals import Estimate
from batchscale.atlas.published_laws import PublishedLaw, find_published
from batchscale.atlas.similar import Neighbour, OwnCurve, find_similar, make_prior
from batchscale.atlas.table import Atlas
from batchscale.errors import AnalysisError
from batchscale.prediction.prediction import Prediction, Quantity, refuse_vague

ATLAS = "atlas"
LAWS = "published_laws"
NEIGHBOURS = 6
SAME_OPTIMIZER = "same optimizer"  # a reason of ``find_similar`` that alone makes no neighbour
LANGUAGE_MODELS = ("language model", "transformer")
_LIKE = "The workload is like the {count} nearest of the atlas by names alone ({labels}); the interval is their range."
_ALIKE = "The workload is like others of the atlas by names alone; the interval is their range."
_LAW = "The laws of {names} hold for {tokens:.3g} tokens, though they were measured at a billion and more."


def atlas_prediction(own: OwnCurve, atlas: Atlas, tokens_per_example: int | None = None) -> Prediction:
    """Return the critical batch size of the workload's nearest neighbours.

    A neighbour that counts sequences of a known length is converted to tokens, and these to the workload's examples.
    """
    try:
        nearest = find_similar(atlas, own, 4 * NEIGHBOURS)
    except AnalysisError as error:
        nearest, reason = [], str(error)
    else:
        reason = "No curve of the atlas with a critical batch size has the same data set, model or kind of model."
    alike = [item for item in nearest if set(item.reasons) - {SAME_OPTIMIZER}]
    neighbours = [item for item in alike if item.row["b_crit"]][:NEIGHBOURS]
    if not neighbours:
        return _free(ATLAS, "critical_batch_size", Estimate(), _ALIKE, reason)
    prior = make_prior([_in_own_examples(item, tokens_per_example) for item in neighbours])
    labels = ", ".join(dict.fromkeys(str(item.row["label"]) for item in neighbours[:2]))
    assumption = _LIKE.format(count=len(neighbours), labels=f"{labels}, …" if len(neighbours) > 2 else labels)
    estimate = Estimate(prior.b_crit, prior.b_crit_low, prior.b_crit_high)
    return refuse_vague(_free(ATLAS, "critical_batch_size", estimate, assumption))


def law_predictions(kind: str, tokens: float | None, tokens_per_example: int | None) -> list[Prediction]:
    """Return what published laws of language models say for a training of so many tokens.

    Args:
        kind: The kind of model, as the atlas names it.
        tokens: The tokens of the planned training; None if they are not known.
        tokens_per_example: The tokens of an example; None likewise.
    """
    if kind not in LANGUAGE_MODELS or not tokens or not tokens_per_example:
        reason = "Published laws are of language models, for a planned number of tokens; this workload has none."
        return [_free(LAWS, "critical_batch_size", Estimate(), "A published law holds for this workload.", reason)]
    names: tuple[tuple[str, Quantity], ...] = (("b_crit", "critical_batch_size"), ("b_opt", "optimal_batch_size"))
    return [
        _by_laws(quantity, [law for law in find_published(symbol) if law.value(tokens)], tokens, tokens_per_example)
        for symbol, quantity in names
    ]


def _by_laws(quantity: Quantity, laws: Sequence[PublishedLaw], tokens: float, tokens_per_example: int) -> Prediction:
    values = sorted((law.value(tokens) or 0.0) / tokens_per_example for law in laws)
    middle = values[len(values) // 2]
    several = len(values) > 1
    estimate = Estimate(middle, values[0] if several else None, values[-1] if several else None)
    names = " and ".join(dict.fromkeys(law.name for law in laws))
    reason = "" if several else "One law has no interval."
    return _free(LAWS, quantity, estimate, _LAW.format(names=names, tokens=tokens), reason)


def _in_own_examples(neighbour: Neighbour, tokens_per_example: int | None) -> Neighbour:
    sequence = neighbour.row["sequence"]
    if not (sequence and tokens_per_example):
        return neighbour
    factor = sequence / tokens_per_example
    return replace(neighbour, row={**neighbour.row, "b_crit": neighbour.row["b_crit"] * factor})


def _free(method: str, quantity: Quantity, estimate: Estimate, assumption: str, reason: str = "") -> Prediction:
    return Prediction(method, quantity, estimate, 0, 0, assumption, reason)
