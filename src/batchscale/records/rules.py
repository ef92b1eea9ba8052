"""The rules of the format by their short names, and a fault: a place that breaks one."""

from collections.abc import Mapping
from dataclasses import dataclass

RULES: Mapping[str, str] = {
    # files that cannot be read
    "unreadable": "every file of the layout can be read",
    "outside-link": "a symbolic link leads to a place inside the tree",
    "not-a-folder": "a study and a trial are folders",
    "not-a-file": "study.json, metadata.json and measurements.csv are files",
    "too-large": "a file is no larger than any record can be",
    "long-line": "a line has at most 1,048,576 bytes",
    "not-utf8": "a file is UTF-8 text",
    # the layout
    "missing-file": "a study has study.json, a trial has metadata.json and measurements.csv",
    "folder-name": "the folders of a workload are named by batch size, those of a study by trial id: whole numbers",
    "workload-name": "a study lies in DATASET/MODEL/OPTIMIZER/BATCH_SIZE, names of letters, digits and _ . + -",
    # study.json and metadata.json
    "bad-json": "study.json and metadata.json are JSON objects",
    "byte-order-mark": "a file starts without a byte order mark",
    "missing-key": "the published keys are all there",
    "bad-value": "a published key has a value of its kind",
    "workload-disagrees": "dataset, model and optimizer agree with the folders",
    "batch-size-disagrees": "batch_size agrees with the folder of the study",
    "trial-id-disagrees": "trial_id agrees with the folder of the trial",
    "unknown-status": "status is COMPLETE, INCOMPLETE or INFEASIBLE",
    "bad-space": "each parameter config is a range or a list of feasible points",
    "bad-parameter": "a parameter is a finite number whose name no other column has",
    "too-many-parameters": "a trial has at most 100 parameters",
    "missing-parameter": "a trial has a value of each metaparameter of its search",
    "outside-space": "a parameter lies in the space of its search",
    "too-few-steps": "a COMPLETE trial took at least train_steps, unless trials could stop early",
    # measurements.csv
    "newer-format": "our own metadata is of a format version that this batchscale reads",
    "bad-facts": "every value under our own key is of its kind",
    "changed-measurements": "measurements.csv is as it was when the trial was recorded",
    "changed-metadata": "study.json and metadata.json are as they were when they were recorded",
    "foreign-journal": "a journal belongs to the trial that it is named for",
    "torn-line": "every line ends with a line break",
    "missing-column": "the first column is step, then come the metrics that the study's trials have",
    "column-name": "a column behind step is named split/metric, each name once",
    "cell-count": "a line has as many cells as there are columns",
    "bad-step": "a step is a whole number from 0 to 2^53",
    "duplicate-step": "a step is there once",
    "step-order": "steps grow from line to line",
    "non-numeric": "a cell is a number below 1.8e308, nan, inf, -inf or empty",
    "no-measurements": "a COMPLETE trial has measurements",
}

STORAGE_RULES: Mapping[str, str] = {
    "archive-member": "an archive has regular files of the layout inside it, each once",
    "archive-damage": "an archive can be read to its end",
    "table-file": "a file of a table agrees with its manifest",
}

ALL_RULES: Mapping[str, str] = {**RULES, **STORAGE_RULES}

UNREADABLE_RULES = frozenset(
    {
        "archive-damage",
        "table-file",
        "unreadable",
        "outside-link",
        "not-a-folder",
        "not-a-file",
        "too-large",
        "long-line",
        "not-utf8",
        "newer-format",
    }
)


@dataclass(frozen=True)
class Fault:
    """A fault in a file: the line (None: the file as a whole), the rule's short name, and the text or value found."""

    line: int | None
    rule: str
    found: str

    def __str__(self) -> str:
        where = "" if self.line is None else f"line {self.line}: "
        return f"{where}{ALL_RULES[self.rule]}. Found {self.found}."
