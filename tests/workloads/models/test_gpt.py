"""The GPT against a second code: its logits in numpy, and its losses in PyTorch, step by step from the same weights."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from batchscale.workloads.losses import softmax_cross_entropy
from batchscale.workloads.models.architectures.gpt import rotate
from batchscale.workloads.models.declaration import Shape, find_model
from batchscale.workloads.optimizers.declaration import OPTIMIZERS

sys.path.insert(0, str(Path(__file__).parents[1]))
from generated import cheap_jit

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
LENGTH, VOCABULARY, HEADS = 9, 17, 2
STEPS, RATE = 20, 3e-3
# every token but the first follows from the one before
COUNTING = (np.arange(LENGTH) * 3 + np.arange(VOCABULARY)[:, None]) % VOCABULARY
TORCH = """
import json, sys
import numpy as np, torch
from engine_cases import Case
from torch_worker import Gpt
torch.set_num_threads(1)
stored = np.load("start.npz")
case = Case("gpt", "gpt", (stored["tokens"].shape[2],), int(stored["vocabulary"]), (16, 32, 2), 0.0, heads=2)
model = Gpt(case)
kinds = ("scale", "table", "kernel")
with torch.no_grad():
    for path, parameter in model.named_parameters():
        owner = path.removesuffix(".weight")
        kind = next(kind for kind in kinds if f"{owner}.{kind}" in stored)
        values = torch.from_numpy(stored[f"{owner}.{kind}"])
        parameter.copy_(values.T if kind == "kernel" else values)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
losses = []
for tokens in torch.from_numpy(stored["tokens"]):
    optimizer.zero_grad()
    logits = model(tokens)
    loss = torch.nn.functional.cross_entropy(logits[:, :-1].reshape(-1, logits.shape[-1]), tokens[:, 1:].reshape(-1))
    loss.backward()
    optimizer.step()
    losses.append(float(loss))
print(json.dumps(losses))
"""


def build(**options):
    sizes = {"width": 16, "heads": HEADS, "filter_width": 32, "layers": 2, **options}
    return find_model("gpt_100k", sizes).for_data(Shape((LENGTH,), VOCABULARY))


def start(model):
    params, _ = cheap_jit(model.init)(jax.random.key(3))
    # scales of one would hide a norm that is left out
    return jax.tree.map(lambda leaf: leaf if leaf.ndim == 2 else leaf * np.linspace(0.5, 1.5, leaf.size), params)


def by_hand(params, tokens, swiglu, tied):
    """The model in float64: one sequence, heads and positions in loops."""
    p = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)

    def norm(x, scale):
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * scale

    def turned(x, position):
        half = len(x) // 2
        turns = np.exp(1j * position * 10_000.0 ** (-np.arange(half) / half))
        pairs = (x[:half] + 1j * x[half:]) * turns
        return np.concatenate([pairs.real, pairs.imag])

    def attention(block, x):
        q, k, v = (x @ block[name]["kernel"] for name in ("query", "key", "value"))
        out, size = np.zeros_like(x), x.shape[-1] // HEADS
        for head in range(HEADS):
            at = slice(head * size, (head + 1) * size)
            for t in range(len(x)):
                query = turned(q[t, at], t)
                scores = np.array([query @ turned(k[s, at], s) for s in range(t + 1)]) / math.sqrt(size)
                shares = np.exp(scores - scores.max())
                out[t, at] = shares / shares.sum() @ v[: t + 1, at]
        return out @ block["join"]["kernel"]

    def network(block, x):
        wide = x @ block["widen"]["kernel"]
        if swiglu:
            gate = x @ block["gate"]["kernel"]
            wide = gate / (1 + np.exp(-gate)) * wide
        else:
            wide = wide / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3)))
        return wide @ block["narrow"]["kernel"]

    x = p["embed"]["table"][tokens]
    for block in p["blocks"].values():
        x = x + attention(block, norm(x, block["attention_norm"]["scale"]))
        x = x + network(block, norm(x, block["network_norm"]["scale"]))
    return norm(x, p["norm"]["scale"]) @ p["embed" if tied else "output"]["table"].T


@pytest.mark.parametrize(("swiglu", "tied"), [(False, True), (True, False)])
def test_the_logits_are_those_of_the_formulas_in_numpy(swiglu, tied):
    model = build(swiglu=swiglu, tied=tied)
    params = start(model)
    tokens = np.random.default_rng(0).integers(0, VOCABULARY, (2, LENGTH))
    logits, _ = cheap_jit(lambda p: model.apply(p, {}, jnp.asarray(tokens), train=True, key=jax.random.key(0)))(params)
    expected = np.stack([by_hand(params, row, swiglu, tied) for row in tokens])
    np.testing.assert_allclose(logits, expected, atol=2e-5 * np.abs(expected).max())  # float32, sums of some hundred


def test_products_of_turned_vectors_depend_on_their_distance_alone():
    query, key = jax.random.normal(jax.random.key(0), (2, 8))
    turned = [rotate(jnp.broadcast_to(vector, (1, 30, 1, 8)))[0, :, 0] for vector in (query, key)]
    products = np.asarray(turned[0] @ turned[1].T)
    for distance in range(20):
        along = np.diagonal(products, distance)
        np.testing.assert_allclose(along, along[0], atol=1e-5)
    assert np.ptp(products[0]) > 0.1


def test_it_learns_what_comes_next():
    losses = train(build(), np.broadcast_to(COUNTING, (150, *COUNTING.shape)))
    assert losses[0] == pytest.approx(math.log(VOCABULARY), abs=0.1)
    assert losses[-1] < 0.1


def train(model, batches):
    params, state = start(model), None
    values = {"beta1": 0.9, "beta2": 0.95, "epsilon": 1e-8, "weight_decay": 0.1}
    rule = OPTIMIZERS.find("adamw").rule(values, lambda _: jnp.float32(RATE))

    def loss_of(params, tokens):
        logits, _ = model.apply(params, {}, tokens, train=True, key=jax.random.key(0))
        return softmax_cross_entropy(logits[:, :-1], tokens[:, 1:]).mean()

    @jax.jit
    def step(params, state, tokens):
        loss, gradient = jax.value_and_grad(loss_of)(params, tokens)
        change, state = rule.update(gradient, state, params)
        return optax.apply_updates(params, change), state, loss

    state = rule.init(params)
    losses = []
    for tokens in batches:
        params, state, loss = step(params, state, jnp.asarray(tokens))
        losses.append(float(loss))
    return losses


@pytest.mark.torch
@pytest.mark.timeout(300)
def test_every_loss_of_a_training_is_that_of_the_same_model_in_pytorch(tmp_path):
    folder = os.environ.get("BATCHSCALE_TRAINERS")
    if folder is None:
        pytest.skip("PyTorch is installed by `make test-torch`")
    model = build()
    leaves = jax.tree_util.tree_leaves_with_path(start(model))
    arrays = {".".join(part.key for part in path): np.asarray(leaf, np.float32) for path, leaf in leaves}
    batches = COUNTING[np.random.default_rng(1).integers(0, VOCABULARY, (STEPS, 8))]
    np.savez(tmp_path / "start.npz", tokens=batches, vocabulary=VOCABULARY, **arrays)
    environment = {**os.environ, "PYTHONPATH": str(BENCHMARKS)}
    answer = subprocess.run(
        [f"{folder}/python", "-c", TORCH], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=200
    )
    assert answer.returncode == 0, answer.stderr
    expected, found = json.loads(answer.stdout), train(model, batches)
    # float32 rounds to 6e-8; sums of some hundred in another order, carried through 20 steps of AdamW
    np.testing.assert_allclose(found, expected, rtol=2e-5)
    assert found[-1] < found[0] - 0.3  # it has moved far from its start
