"""What workers find in their environment, and what the inline runner gives back."""

import os

import pytest
from protocol_fakes import fake_setup

from batchscale.runners.environment import single_threaded
from batchscale.runners.inline import InlineRunner


def test_the_inline_runner_computes_on_one_thread_and_gives_the_variables_back(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=x")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    before = dict(os.environ)
    with InlineRunner(fake_setup()):
        inside = {name: os.environ[name] for name in single_threaded()}
    assert inside == single_threaded("--xla_dump_to=x")
    assert dict(os.environ) == before


def test_they_come_back_also_after_an_error(monkeypatch):
    before = dict(os.environ)
    with pytest.raises(ZeroDivisionError), InlineRunner(fake_setup()):
        raise ZeroDivisionError
    assert dict(os.environ) == before


def test_they_come_back_when_the_engine_cannot_be_loaded():
    setup = fake_setup()
    before = dict(os.environ)
    with pytest.raises(ModuleNotFoundError):
        InlineRunner(type(setup)(setup.experiment, engine="no_such_module:make_engine"))
    assert dict(os.environ) == before
