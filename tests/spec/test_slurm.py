"""[run.slurm]: what workers ask of SLURM, as checked words."""

import pytest

from batchscale.errors import SpecError
from batchscale.spec.experiment import SlurmOptions
from batchscale.spec.file import parse_experiment

SHORTEST = 'goal = "val/loss < 1"\nworkload = "digits/fc_64/sgd"\n[run.slurm]\n'


def read(lines: str) -> SlurmOptions:
    return parse_experiment(SHORTEST + lines).run.slurm


def test_every_key_is_read():
    found = read(
        'partition = "gpu"\naccount = "lab-7"\nqos = "normal"\ntime = "1-12:00:00"\ngpus = "a100:2"\ncpus = 8\n'
        'memory = "16G"\nsave_s = 60\noptions = ["--constraint=a100&nvlink", "--exclusive"]\n'
    )
    assert found == SlurmOptions(
        "gpu", "lab-7", "normal", "1-12:00:00", "a100:2", 8, "16G", 60, ("--constraint=a100&nvlink", "--exclusive")
    )
    assert (found.limit_s, found.num_gpus) == (129_600, 2)


def test_numbers_are_minutes_and_gpus():
    found = read("time = 90\ngpus = 1\n")
    assert (found.limit_s, found.num_gpus) == (5400, 1)
    assert (read("").limit_s, read("").num_gpus) == (None, 0)


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ('partition = "a b"', "slurm.partition must be one word"),
        ('account = "--wrap=x"', "slurm.account must be one word"),
        ('partition = "$(id)"', "slurm.partition must be one word"),
        ('gpus = "many"', "slurm.gpus must be a number, or kind and number"),
        ('time = "soon"', "slurm.time must be minutes"),
        ('time = "1:2:3:4"', "slurm.time must be minutes"),
        ("time = 3", "at least twice save_s"),
        ('options = ["exclusive=yes --wrap=rm"]', "single words"),
        ('options = ["-p gpu"]', "single words"),
        ('options = ["exclusive"]', "single words"),
        ('options = ["--comment=a\\nb"]', "single words"),
        ('options = ["--wrap=id"]', "Found --wrap"),
        ('options = ["--array=0-9"]', "Found --array"),
        ('options = ["--wra=id"]', "Found --wra"),
        ('partitions = "gpu"', "unknown key 'run.slurm.partitions'; did you mean 'partition'"),
        ("save_s = 1", "greater than or equal to 10"),
    ],
)
def test_what_is_no_word_of_sbatch_is_refused(lines, says):
    with pytest.raises(SpecError, match=says):
        read(lines)


def test_where_it_runs_is_no_part_of_what_an_experiment_is():
    from batchscale.study.identity import normalise

    other = parse_experiment(SHORTEST + 'partition = "gpu"\n')
    assert normalise(other) == normalise(parse_experiment(SHORTEST))
