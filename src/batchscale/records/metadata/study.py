"""What ``study.json`` says besides the published keys: what was asked of the study, how it was searched, its end."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from batchscale.errors import SpecError, one_line
from batchscale.records.metadata.base import FORMAT_VERSION, OWN_KEY, VERSION_KEY, read_version, upgrade_study
from batchscale.records.metadata.fields import Fields, is_finite, is_whole, without_none
from batchscale.search.edge_guard import Side
from batchscale.spec.space import SearchSpace


@dataclass(frozen=True)
class SearchMetadata:
    """One search of a study.

    ``ranges`` has, for each range of trial ids, the first id and the point that this trial is; a search has more than
    one when it got more trials after a later search had begun. ``reason`` says why it was opened; empty for the first.
    """

    space: SearchSpace
    ranges: tuple[tuple[int, int], ...]
    reason: str = ""

    def to_json(self) -> dict[str, Any]:
        """The object in the list ``searches``."""
        return {"space": self.space.to_json(), "ranges": [list(pair) for pair in self.ranges], "reason": self.reason}

    @classmethod
    def read(cls, fields: Fields) -> "SearchMetadata":
        """The search that an object describes."""
        try:
            space = SearchSpace.from_json(fields.mapping("space"))
        except SpecError as error:
            raise fields.refuse("space", f"is a search space ({one_line(error)})") from None
        pairs = fields.items("ranges")
        if not pairs or not all(isinstance(p, list) and len(p) == 2 and all(map(is_whole, p)) for p in pairs):
            raise fields.refuse("ranges", "is a list of pairs: first trial id, first point")
        return cls(space, tuple((first, point) for first, point in pairs), fields.text("reason") or "")


@dataclass(frozen=True)
class EdgeEnd:
    """An end of a range that the best trial was left at."""

    parameter: str
    side: Side

    def __str__(self) -> str:
        return f"{self.parameter} {self.side}"

    @classmethod
    def read(cls, fields: Fields) -> "EdgeEnd":
        """The end that an object names."""
        parameter, side = fields.text("parameter"), fields.text("side")
        if not parameter:
            raise fields.refuse("parameter", "is the name of a metaparameter")
        if side not in list(Side):
            raise fields.refuse("side", "is low or high")
        return cls(parameter, Side(side))


@dataclass(frozen=True)
class StudyResult:
    """What the run found when the study ended.

    ``short`` says that fewer trials than wanted did not diverge.
    """

    goal_reached: bool
    at_edge: tuple[EdgeEnd, ...] = ()
    short: bool = False

    def to_json(self) -> dict[str, Any]:
        """The object under ``finding``."""
        ends = [{"parameter": end.parameter, "side": end.side.value} for end in self.at_edge]
        return {"goal_reached": self.goal_reached, "at_edge": ends, "short": self.short}

    @classmethod
    def read(cls, fields: Fields) -> "StudyResult":
        """The finding that an object describes."""
        return cls(
            goal_reached=bool(fields.flag("goal_reached")),
            at_edge=fields.parts("at_edge", EdgeEnd.read),
            short=bool(fields.flag("short")),
        )


@dataclass(frozen=True)
class TrainerMetadata:
    """What trained the trials: our own engine, or the user's script."""

    name: str
    version: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The object under ``trainer``."""
        return without_none(name=self.name, version=self.version)

    @classmethod
    def read(cls, fields: Fields) -> "TrainerMetadata":
        """The trainer that an object names."""
        name = fields.text("name")
        if not name:
            raise fields.refuse("name", "is the name of a framework or script")
        return cls(name, fields.text("version"))


@dataclass(frozen=True)
class StudyMetadata:
    """All our facts of a study; None and empty stand for what is not known.

    ``budgets`` are the step budgets it has had, growing. ``population`` is how many trials train together.
    ``edge_margin`` is how near an end of its range a value is at it, as a share of the range.
    ``evaluation`` is the evaluation plan, ``experiment`` the whole normalised experiment file as text. ``finding`` is
    None until the study has ended. ``other`` has keys of this version that this code does not know.
    """

    code_version: str | None = None
    spec_hash: str | None = None
    goal: str | None = None
    stop_rule: str | None = None
    trials: int | None = None
    finishers: int | None = None
    seed: int | None = None
    fixed: Mapping[str, float] = field(default_factory=dict)
    evaluation: Mapping[str, Any] = field(default_factory=dict)
    num_train_examples: int | None = None
    budgets: tuple[int, ...] = ()
    population: int | None = None
    edge_margin: float | None = None
    searches: tuple[SearchMetadata, ...] = ()
    result: StudyResult | None = None
    trainer: TrainerMetadata | None = None
    experiment: str | None = None
    other: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The object under our key in ``study.json``."""
        known = without_none(
            format_version=FORMAT_VERSION,
            code_version=self.code_version,
            spec_hash=self.spec_hash,
            goal=self.goal,
            stop_rule=self.stop_rule,
            trials=self.trials,
            finishers=self.finishers,
            seed=self.seed,
            fixed=dict(self.fixed) or None,
            evaluation=dict(self.evaluation) or None,
            num_train_examples=self.num_train_examples,
            budgets=list(self.budgets) or None,
            population=self.population,
            edge_margin=self.edge_margin,
            searches=[search.to_json() for search in self.searches] or None,
            finding=self.result.to_json() if self.result else None,
            trainer=self.trainer.to_json() if self.trainer else None,
            experiment=self.experiment,
        )
        return {**self.other, **known}

    @classmethod
    def from_json(cls, own: object, where: str) -> "StudyMetadata":
        """The facts that stand under our key in the ``study.json`` at ``where``, of any version up to ours.

        Raises:
            NewerFormatError: their version is newer.
            MetadataError: one of them is not of its kind.
        """
        version = read_version(own, where)
        assert isinstance(own, Mapping)
        fields = Fields(upgrade_study(own, version), f"{where}: {OWN_KEY}")
        fields.whole(VERSION_KEY)
        return cls(
            code_version=fields.text("code_version"),
            spec_hash=fields.text("spec_hash"),
            goal=fields.text("goal"),
            stop_rule=fields.text("stop_rule"),
            trials=fields.whole("trials"),
            finishers=fields.whole("finishers"),
            seed=fields.whole("seed"),
            fixed=_read_fixed(fields),
            evaluation=fields.mapping("evaluation"),
            num_train_examples=fields.whole("num_train_examples", least=1),
            budgets=_read_budgets(fields),
            population=fields.whole("population"),
            edge_margin=fields.number("edge_margin"),
            searches=fields.parts("searches", SearchMetadata.read),
            result=fields.part("finding", StudyResult.read),
            trainer=fields.part("trainer", TrainerMetadata.read),
            experiment=fields.text("experiment"),
            other=fields.rest(),
        )


def _read_fixed(fields: Fields) -> Mapping[str, float]:
    values = fields.mapping("fixed")
    if not all(map(is_finite, values.values())):
        raise fields.refuse("fixed", "has a finite number for each name")
    return values


def _read_budgets(fields: Fields) -> tuple[int, ...]:
    budgets = fields.items("budgets")
    if not all(is_whole(steps, 1) for steps in budgets):
        raise fields.refuse("budgets", "is a list of whole numbers from 1")
    return tuple(budgets)
