"""Batch sizes, budgets and evaluations in tokens become examples and steps, or are refused with the nearest sizes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchscale.errors import SpecError
from batchscale.spec.batch_sizes import BatchSizes
from batchscale.spec.durations import Unit, to_steps
from batchscale.spec.file import parse_experiment
from batchscale.spec.plan import Plan, WorkloadInfo, make_plan
from batchscale.spec.space import SearchSpace
from batchscale.spec.tokens import parse_duration
from batchscale.spec.workload_name import WorkloadName

FILE = """
goal = "val/loss < 3"
batch_sizes = ["16k tokens", "64k tokens"]
trials = 2
workload = "text/gpt/adamw"
[budget]
tokens = 20e6
"""


def info(tokens: int | None = 512, examples: int | None = 10_000) -> WorkloadInfo:
    name = WorkloadName("text", "gpt", "adamw")
    defaults = {"learning_rate": 0.1}
    return WorkloadInfo(name, {"loss": False}, examples, defaults, lambda _: SearchSpace(), tokens_per_example=tokens)


def plan(text: str = FILE, **facts) -> Plan:
    return make_plan(parse_experiment(text), info(**facts))


def test_a_plan_in_tokens_is_the_plan_in_examples():
    studies = plan().studies
    assert [study.batch_size for study in studies] == [32, 128]
    assert [study.train_steps for study in studies] == [1221, 306]  # 20e6 / (512 x 32) = 1220.7, 20e6 / (512 x 128)
    assert {study.tokens_per_example for study in studies} == {512}
    in_examples = FILE.replace('["16k tokens", "64k tokens"]', "[32, 128]").replace("tokens = 20e6", "examples = 39063")
    assert [study.evaluation_steps for study in plan(in_examples).studies] == [s.evaluation_steps for s in studies]


@pytest.mark.parametrize(
    ("texts", "per_example", "sizes"),
    [
        (["16k tokens"], 512, (32,)),
        (["16k tokens"], 1000, (16,)),
        (["16K Tokens", "0.5M TOKENS"], 256, (64, 2048)),
        (["16,384 tokens", "32_768 tokens", "1 token"], 1, (1, 16_384, 32_768)),
        (["1.5k tokens"], 512, (3,)),
        (["1.5k tokens"], 100, (15,)),
        (["16k tokens", "100k tokens"], 1000, (16, 100)),  # one meaning of k for all sizes
        (["2k..16k tokens by 2"], 512, (4, 8, 16, 32)),
        (["1e6 tokens"], 1000, (1000,)),
    ],
)
def test_sizes_in_tokens_are_whole_examples(texts, per_example, sizes):
    assert BatchSizes.parse(texts).resolve(None, per_example) == sizes


@given(st.integers(1, 4096), st.integers(1, 10_000))
def test_a_whole_number_of_examples_is_read_exactly(per_example, examples):
    texts = [f"{per_example * examples} tokens", f"{per_example * examples:,} tokens"]
    assert BatchSizes.parse(texts).resolve(None, per_example) == (examples,)


@given(st.integers(1, 10**9), st.integers(1, 4096), st.integers(1, 4096))
def test_a_budget_in_tokens_is_trained_in_full_by_the_fewest_steps(amount, per_example, batch_size):
    if amount >= per_example and amount / (per_example * batch_size) < 2**31:
        steps = to_steps(amount, Unit.TOKENS, batch_size, tokens_per_example=per_example)
        assert (steps - 1) * batch_size * per_example < amount <= steps * batch_size * per_example


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        (
            '["1050 tokens"]',
            r"must be a whole number of examples.* 512 tokens.*2.05078 examples. Nearest: 1,024 tokens ",
        ),
        ('["16k tokens", "1000 tokens"]', r"Found '1000 tokens', 1.95312 .*1,024 tokens \(2\)"),
        ('["300 tokens"]', r"Nearest: 512 tokens \(1\)"),
        ('["16k"]', r"Found .16k."),
        ('["16 kB tokens"]', r"A number of tokens is written like .*Found '16 kB tokens'"),
        ('["0 tokens"]', "at least one token"),
        ('["-16k tokens"]', "Found '-16k tokens'"),
        ('["99999999999999999999 tokens"]', "must not exceed 9,007,199,254,740,992"),
        ('["16k tokens", 64]', "all in tokens, or none. Found 64 beside"),
        ('["16k tokens", "full"]', "all in tokens, or none. Found 'full' beside"),
        ('["64k..16k tokens"]', 'written like "16k..1M tokens"'),
        ('["16k tokens by 2"]', 'written like "16k..1M tokens"'),
        ('["tokens"]', "Found 'tokens'"),
    ],
)
def test_a_wrong_size_is_refused_with_what_would_be_right(sizes, message):
    with pytest.raises(SpecError, match=message):
        plan(FILE.replace('["16k tokens", "64k tokens"]', sizes))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("tokens = 20e6", "tokens = 0", "greater than or equal to 1"),
        ("tokens = 20e6", "tokens = -5", "greater than or equal to 1"),
        ("tokens = 20e6", "tokens = 1.5", "must be whole. Found 1.5"),
        ("tokens = 20e6", "tokens = 1e300", "less than or equal to"),
        ("tokens = 20e6", "tokens = 3", "at least one example"),
        ("tokens = 20e6", "tokens = 20e6\nepochs = 3", "Found epochs and tokens"),
        ("[budget]", '[evaluation]\nevery = "1.5 tokens"\n[budget]', "whole and at least 1"),
        ("[budget]", '[evaluation]\nevery = "often"\n[budget]', "Found 'often'"),
        ("[budget]", '[search.per_batch_size."1k..2k tokens"]\n[budget]', "each key must be a batch size"),
        ("trials = 2", "trials = 2\ntokens_per_example = 300", "whole number of examples, and an example has 300"),
        ("trials = 2", "trials = 2\ntokens_per_example = 1024", r"must be what the workload has: 512 .* Found 1,024"),
        ("tokens = 20e6", "tokens = 20e6\ntokens_per_example = 512", "must stand at the top of the file"),
    ],
)
def test_a_mistake_with_tokens_names_the_rule(old, new, message):
    with pytest.raises(SpecError, match=message):
        plan(FILE.replace(old, new, 1))


def test_tokens_need_the_tokens_of_an_example():
    with pytest.raises(SpecError, match=r"Found a batch size of 16k tokens. Give tokens_per_example at the top"):
        plan(tokens=None)
    given_in_file = FILE.replace("trials = 2", "trials = 2\ntokens_per_example = 512")
    assert plan(given_in_file, tokens=None).studies == plan().studies
    budget_only = FILE.replace('batch_sizes = ["16k tokens", "64k tokens"]', "batch_sizes = [32]")
    with pytest.raises(SpecError, match="Found 20,000,000 tokens"):
        plan(budget_only, tokens=None)


def test_evaluations_and_settings_of_single_sizes_may_be_in_tokens():
    text = FILE.replace("tokens = 20e6", 'tokens = 20e6\nper_batch_size = { "64k tokens" = 40e6 }')
    text += '[evaluation]\nevery = "1M tokens"\n'
    small, large = plan(text).studies
    assert (small.train_steps, large.train_steps) == (1221, 611)
    assert small.evaluation_steps[:3] == (0, 62, 124)  # 1e6 / 16,384 = 61.04
    assert large.evaluation_steps[:3] == (0, 16, 32)


@pytest.mark.parametrize("text", ["20M tokens", "20_000_000 tokens", "20,000,000 tokens", "0.02B tokens", "2e7 tokens"])
def test_a_duration_is_read_with_powers_of_1000(text):
    assert parse_duration(text) == 20_000_000
