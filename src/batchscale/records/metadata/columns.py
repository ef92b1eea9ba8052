"""Our own facts as one struct column of the studies and of the trials frame, null where a file has none.

A struct, because its fields are real columns (typed, stored apart, selected by name) and yet never collide with a
metaparameter, whose columns stand beside it: ``pl.col("facts").struct.field("step_time_s")``.
"""

import json
from collections.abc import Mapping
from typing import Any

import polars as pl

from batchscale.records.metadata.study import StudyMetadata
from batchscale.records.metadata.trial import Hardware, Timing, TrialMetadata

METADATA = "facts"

STUDY_METADATA: Mapping[str, pl.DataType] = {
    "code_version": pl.String(),
    "spec_hash": pl.String(),
    "goal": pl.String(),
    "stop_rule": pl.String(),
    "trials": pl.Int64(),  # how many were asked for
    "finishers": pl.Int64(),
    "seed": pl.Int64(),
    "fixed": pl.String(),  # a JSON object
    "evaluation": pl.String(),  # a JSON object
    "num_train_examples": pl.Int64(),
    "budgets": pl.List(pl.Int64()),
    "population": pl.Int64(),
    "edge_margin": pl.Float64(),
    "spaces": pl.List(pl.String()),  # of each search, as parameter_configs
    "reasons": pl.List(pl.String()),  # of each search
    "goal_reached": pl.Boolean(),  # this and the next two: null until the study has ended
    "at_edge": pl.List(pl.String()),  # "learning_rate high"
    "short": pl.Boolean(),
    "trainer": pl.String(),
    "trainer_version": pl.String(),
    "experiment": pl.String(),
}

TRIAL_METADATA: Mapping[str, pl.DataType] = {
    "seed": pl.Int64(),
    "search": pl.Int64(),
    "point": pl.Int64(),
    "stop_reason": pl.String(),
    "reached_at": pl.Int64(),
    "diverged_at": pl.Int64(),
    "best": pl.Float64(),
    "failure": pl.String(),
    "log_lines": pl.List(pl.String()),
    "compile_s": pl.Float64(),
    "warm_up_s": pl.Float64(),
    "train_s": pl.Float64(),
    "evaluation_s": pl.Float64(),
    "num_steps": pl.Int64(),
    "step_time_s": pl.Float64(),
    "examples_per_s": pl.Float64(),
    "total_s": pl.Float64(),
    "device_kind": pl.String(),
    "platform": pl.String(),
    "num_devices": pl.Int64(),
    "num_hosts": pl.Int64(),
    "host": pl.String(),
    "measurements_sha256": pl.String(),
}


def study_metadata_row(facts: StudyMetadata | None) -> dict[str, Any] | None:
    """The facts as a value of the column."""
    if facts is None:
        return None
    finding, trainer = facts.result, facts.trainer
    return {
        "code_version": facts.code_version,
        "spec_hash": facts.spec_hash,
        "goal": facts.goal,
        "stop_rule": facts.stop_rule,
        "trials": facts.trials,
        "finishers": facts.finishers,
        "seed": facts.seed,
        "fixed": json.dumps(dict(facts.fixed), sort_keys=True),
        "evaluation": json.dumps(dict(facts.evaluation), sort_keys=True),
        "num_train_examples": facts.num_train_examples,
        "budgets": list(facts.budgets),
        "population": facts.population,
        "edge_margin": facts.edge_margin,
        "spaces": [json.dumps(search.space.to_json(), sort_keys=True) for search in facts.searches],
        "reasons": [search.reason for search in facts.searches],
        "goal_reached": finding.goal_reached if finding else None,
        "at_edge": [str(end) for end in finding.at_edge] if finding else None,
        "short": finding.short if finding else None,
        "trainer": trainer.name if trainer else None,
        "trainer_version": trainer.version if trainer else None,
        "experiment": facts.experiment,
    }


def trial_metadata_row(facts: TrialMetadata | None) -> dict[str, Any] | None:
    """The facts as a value of the column."""
    if facts is None:
        return None
    timing, hardware = facts.timing or Timing(), facts.hardware or Hardware("")
    return {
        "seed": facts.seed,
        "search": facts.search,
        "point": facts.point,
        "stop_reason": facts.stop_reason,
        "reached_at": facts.reached_at,
        "diverged_at": facts.diverged_at,
        "best": facts.best,
        "failure": facts.failure,
        "log_lines": list(facts.log_lines),
        **vars(timing),
        **vars(hardware),
        "device_kind": hardware.device_kind or None,
        "measurements_sha256": facts.measurements_sha256,
    }
