"""Stop rules, one per file: when trials end before they diverge, and in which order they are trained.

A rule is found by its file: ``race.py`` defines ``RULE``, the rule that an experiment file calls ``race``. To add one,
write its file here and add its name to ``batchscale.spec.StopRule``, which checks experiment files.
"""
