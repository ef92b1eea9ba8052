"""The metadata that batchscale adds to ``study.json``: the settings of the study, its searches, its result."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import AfterValidator, Field, PlainValidator

from batchscale.records.metadata.base import (
    Flag,
    JsonObject,
    Number,
    Positive,
    Text,
    Whole,
    is_finite,
    json_key,
    metadata_json,
    parse_metadata,
    read_version,
)
from batchscale.search.edge_guard import Side
from batchscale.spec.adaptive import RoundChoice
from batchscale.spec.space import SearchSpace


def _require_finite(values: Mapping[str, Any]) -> Mapping[str, Any]:
    if not all(map(is_finite, values.values())):
        raise AssertionError
    return values


Space = Annotated[SearchSpace, PlainValidator(SearchSpace.from_json), Field(description="is a search space")]
Ranges = Annotated[
    tuple[tuple[Whole, Whole], ...],
    Field(min_length=1, description="is a list of pairs: first trial id, first point"),
]
TrialIds = Annotated[tuple[Positive, ...], Field(description="is a list of trial ids")]
Budgets = Annotated[tuple[Positive, ...], Field(description="is a list of whole numbers from 1")]
FixedValues = Annotated[
    Mapping[str, Any], AfterValidator(_require_finite), Field(description="has a finite number for each name")
]
HalfLives = Annotated[tuple[Number, ...], Field(description="is a list of numbers")]
BranchSteps = Annotated[
    tuple[tuple[Whole, Positive], ...], Field(description="is a list of pairs: step of the trunk, last step")
]
ParameterName = Annotated[str, Field(strict=True, min_length=1, description="is the name of a metaparameter")]
TrainerName = Annotated[str, Field(strict=True, min_length=1, description="is the name of a framework or script")]


@dataclass(frozen=True)
class SearchMetadata:
    """One search of a study.

    ``ranges`` has, for each range of trial ids, the first id and the point that this trial is; a search has more than
    one when it got more trials after a later search had begun. ``reason`` is why it was opened; empty for the first.
    ``confirms`` are the trials that it trains again with new seeds: point p has the metaparameters of the trial at
    p modulo their number. None for a search.
    """

    space: Space
    ranges: Ranges
    reason: Text = ""
    confirms: TrialIds | None = None


@dataclass(frozen=True)
class EdgeEnd:
    """An end of a range that the best trial was left at."""

    parameter: ParameterName
    side: Annotated[Side, Field(description="is low or high")]

    def __str__(self) -> str:
        return f"{self.parameter} {self.side}"


@dataclass(frozen=True)
class StudyResult:
    """The result of a study that has ended. ``short``: fewer trials than requested did not diverge."""

    goal_reached: Flag = False
    at_edge: tuple[EdgeEnd, ...] = ()
    short: Flag = False


@dataclass(frozen=True)
class TrainerMetadata:
    """The trainer of the trials: our own engine, or the user's script."""

    name: TrainerName
    version: Text | None = None


@dataclass(frozen=True)
class StudyMetadata:
    """All our metadata of a study; None and empty stand for unknown values.

    ``half_lives`` are those of the averages of the weights that were measured, in steps; empty: the weights were.
    ``branches`` has, for each measured branch, the step of the trial's trunk that it left and its last step, which is
    the step of its measurement; empty: the trial itself was measured.
    ``choices`` are the rounds of an adaptive experiment that concern the study, oldest first; empty for a fixed one.
    ``budgets`` are the step budgets it has had, growing. ``population`` is the number of trials that train together.
    ``edge_margin`` is the distance from an end of its range within which a value counts as at it, as a share of the
    range. ``evaluation`` is the evaluation plan, ``experiment`` the whole normalised experiment file as text.
    ``result`` is None until the study has ended. ``other`` has keys of this version that have no field here.
    """

    code_version: Text | None = None
    spec_hash: Text | None = None
    goal: Text | None = None
    stop_rule: Text | None = None
    trials: Whole | None = None
    finishers: Whole | None = None
    seed: Whole | None = None
    fixed: FixedValues = field(default_factory=dict)
    evaluation: JsonObject = field(default_factory=dict)
    num_train_examples: Positive | None = None
    tokens_per_example: Positive | None = None
    half_lives: HalfLives = ()
    branches: BranchSteps = ()
    choices: tuple[RoundChoice, ...] = ()
    budgets: Budgets = ()
    population: Whole | None = None
    edge_margin: Number | None = None
    searches: tuple[SearchMetadata, ...] = ()
    result: StudyResult | None = field(default=None, metadata=json_key("finding"))
    trainer: TrainerMetadata | None = None
    experiment: Text | None = None
    other: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the object under our key in ``study.json``."""
        return metadata_json(self)

    @classmethod
    def from_json(cls, data: object, where: str) -> "StudyMetadata":
        """Return the metadata under our key in the ``study.json`` at ``where``, of any version up to ours.

        Raises:
            NewerFormatError: its version is newer.
            MetadataError: a value is not of its kind.
        """
        version = read_version(data, where)
        assert isinstance(data, Mapping)
        return parse_metadata(cls, data if version > 1 else _upgrade(data), where)


def _upgrade(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata of version 1 as today's version has it."""
    metadata = dict(data)
    if "stop" in metadata:
        metadata["stop_rule"] = metadata.pop("stop")
    if "verdict" in metadata:
        metadata["finding"] = metadata.pop("verdict") or None  # an empty one meant: not ended
    searches = metadata.get("searches")
    if isinstance(searches, list):
        metadata["searches"] = [_upgrade_search(search) for search in searches]
    return metadata


def _upgrade_search(search: object) -> object:
    """Version 1 gave a search's ranges only if there was more than one."""
    if not isinstance(search, Mapping) or "first_trial_id" not in search:
        return search
    rest = {key: value for key, value in search.items() if key != "first_trial_id"}
    return {"ranges": [[search["first_trial_id"], 0]], **rest}


EDGE_WORDS = "at an edge of its search space"
"""The place of a best trial at an edge, in sentences and titles."""

_AT_EDGE = "at edge"


def study_note(edge: str | None, searches: int, *, short: bool = False, ended: bool = True) -> str | None:
    """Return the note printed beside a study's numbers, None if there is nothing to note.

    Args:
        edge: The ends of ranges that its best trial lies at.
        searches: The number of its searches.
        short: True if fewer trials than requested did not diverge.
        ended: True if its run has ended.

    >>> study_note("learning_rate high", 2)
    'at edge: learning_rate high; 2 searches'
    """
    notes = [f"{_AT_EDGE}: {edge}"] if edge else []
    notes += [f"{searches} searches"] if searches > 1 else []
    notes += ["too few non-divergent trials"] if short else []
    notes += [] if ended else ["not finished"]
    return "; ".join(notes) or None


def curve_note(at_edge: str, searched_again: str) -> str | None:
    """Return the note for a whole curve; the arguments list batch sizes as text, empty for none.

    >>> curve_note("4 and 8", "4")
    'at edge at batch size 4 and 8; searched again at batch size 4'
    """
    notes = ((_AT_EDGE, at_edge), ("searched again", searched_again))
    return "; ".join(f"{text} at batch size {sizes}" for text, sizes in notes if sizes) or None
