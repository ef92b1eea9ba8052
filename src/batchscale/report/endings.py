"""How the trials of a workload ended, in a sentence: through their budget, by a rule that stops them, or diverged."""

import polars as pl

from batchscale.figures.names import count
from batchscale.records.frames import STUDY_COLUMNS, Records
from batchscale.records.model import Status


def ending_sentence(records: Records) -> str:
    """What COMPLETE, INFEASIBLE and INCOMPLETE mean for these trials, with the number of those that were stopped."""
    said = []
    complete = records.trials.filter(pl.col("status") == Status.COMPLETE.value)
    if len(complete):
        plans = records.studies.filter("early_stopping", pl.col("train_steps") > 0).select(
            *STUDY_COLUMNS, "train_steps"
        )
        stopped = len(complete.join(plans, on=STUDY_COLUMNS).filter(pl.col("steps") < pl.col("train_steps")))
        through = len(complete) - stopped
        ran = f"{count(through, 'COMPLETE trial')} ran through the budget" if through else ""
        cut = f"{count(stopped, 'COMPLETE trial')} ended before by the stop rule, at the goal or out of the race"
        said.append(", ".join(text for text in (ran, cut if stopped else "") if text) + ".")
    statuses = set(records.trials["status"])
    if Status.INFEASIBLE.value in statuses:
        said.append("INFEASIBLE trials diverged.")
    if Status.INCOMPLETE.value in statuses:
        said.append("INCOMPLETE trials were cut short.")
    return " ".join(said)
