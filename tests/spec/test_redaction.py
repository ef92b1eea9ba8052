"""Secrets of a trainer are hidden in every form that TOML has for them, and what is no secret stays."""

import tomllib

import pytest

from batchscale.spec.file import parse_experiment
from batchscale.spec.redaction import HIDDEN, redact_line, redact_stored, redact_words, secrets_of

KEY = "sk-0123456789abcdef"
HEAD = """goal = "val/error < 0.1"   # WANDB_API_KEY=sk-0123456789abcdef, an old one: "password = hunter2hunter2"
batch_sizes = [8]
[workload]
dataset = "digits"
model = "fc"
optimizer = "sgd"
[budget]
steps = 10
[search.space.learning_rate]
min_value = 0.1
max_value = 1.0
[trainer]
command = ["python", "train.py", "--api-key", "abcdefghij", "--url=https://me:letmein1@host/x", "--seed", "{seed}"]
devices = ["1"]
"""
FORMS = {
    "table": f'[trainer.env]\nWANDB_API_KEY = "{KEY}"\nTHREADS = "1"\nDATA = "digits"\nGPU = "{{device}}"\n',
    "inline": f'env = {{ WANDB_API_KEY = \'{KEY}\', THREADS = "1", DATA = "digits" }}\n',
    "dotted": f'env.WANDB_API_KEY = "{KEY}"\nenv.THREADS = "1"\nenv.DATA = "digits"\n',
    "escaped": 'env = { WANDB_API_KEY = "\\u0073k-0123456789abcdef", THREADS = "\\u0031" }\n',
    "in lines": f"[ trainer . env ]\nWANDB_API_KEY = \"\"\"\\\n   {KEY}\"\"\"\nTHREADS = '''1'''\n",
}


@pytest.mark.parametrize("form", FORMS)
def test_the_stored_text_has_the_names_and_none_of_the_values(form):
    experiment = parse_experiment(HEAD + FORMS[form])
    assert experiment.trainer.env["WANDB_API_KEY"] == KEY and experiment.trainer.env["THREADS"] == "1"
    for secret in (KEY, "0123456789abcdef", "abcdefghij", "letmein1", "hunter2"):
        assert secret not in experiment.text
    before, after = tomllib.loads(HEAD + FORMS[form]), tomllib.loads(experiment.text)
    assert after["trainer"].pop("env") == dict.fromkeys(before["trainer"].pop("env"), HIDDEN)
    words = after["trainer"].pop("command")
    assert words == ["python", "train.py", "--api-key", HIDDEN, f"--url=https://me:{HIDDEN}@host/x", "--seed", "{seed}"]
    before["trainer"].pop("command")
    assert after == before


def test_what_an_older_version_stored_is_shown_without_secrets():
    stored = HEAD + FORMS["table"]
    shown = redact_stored(stored)
    assert KEY not in shown and shown == parse_experiment(stored).text == redact_stored(shown)
    assert redact_stored(None) is None and redact_stored("goal = 1") == "goal = 1"
    assert redact_stored("trainer = 1") == "trainer = 1" and redact_stored("trainer [") == "trainer ["


def test_a_file_whose_values_cannot_be_told_apart_is_not_stored():
    inline = 'env = { A = """\nx""", B = "short" }\n'  # an inline table over two lines
    assert parse_experiment(HEAD + inline).text.startswith("# This file is not stored")


def test_words_that_are_no_secrets_stay():
    words = ["train.py", "--tokenizer", "gpt2", "--max-tokens=512", "--api-key={learning_rate}", "-k", "5", "key=5"]
    assert redact_words(words) == [*words[:-1], "key=***"]
    secrets = secrets_of(["x", "--token", "abcdefgh", "PASSWORD=12345678"], {"A_KEY": "ijklmnop", "B": "plainplain"})
    assert secrets == {"abcdefgh", "12345678", "ijklmnop"}
    assert (
        redact_line("got ijklmnop and plainplain at http://u:p@h", secrets)
        == "got *** and plainplain at http://u:***@h"
    )
