"""Stop rules, one per file: when trials end before they diverge, and in which order they are trained.

A rule is found by its file: ``race.py`` defines ``RULE``, the rule that an experiment file calls ``race``. To add one,
write its file here and add its name to ``batchscale.spec.StopRule``, which checks experiment files.
"""

import importlib
from functools import cache

from batchscale.study.stop_rules.rule import Rule


@cache
def find_rule(name: str) -> Rule:
    """Return the rule of this name."""
    rule: Rule = importlib.import_module(f"{__name__}.{name}").RULE
    return rule
