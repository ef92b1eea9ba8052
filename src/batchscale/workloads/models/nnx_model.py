"""Flax NNX modules as models of pure functions, and models in other precisions."""

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from flax import nnx

from batchscale.workloads.models.declaration import PRECISIONS, ModelDeclaration
from batchscale.workloads.models.layers.conv import DType
from batchscale.workloads.random_bits import key_words
from batchscale.workloads.workload import Model, ModelState, Params

Module = TypeVar("Module", bound=nnx.Module)
MakeModule = Callable[[nnx.Rngs], nnx.Module]


class Keys:
    """A key for each parameter of a model, numbered: what ``nnx.Rngs`` does, without its state and its generator.

    Enough for our own layers, whose initializers use cheap random bits; half the time to trace and compile a start.
    """

    def __init__(self, key: jax.Array) -> None:
        self._words = key_words(key)
        self._count = 0

    def params(self) -> jax.Array:
        """Return the next key, raw."""
        self._count += 1
        first, second = self._words
        return jnp.stack([first, second + jnp.uint32(self._count)])


def make_model(
    name: str, make: MakeModule, microbatch_multiple: int = 1, keys: Callable[[jax.Array], Any] | None = None
) -> Model:
    """Return the model whose forward pass is the module that ``make`` builds; ``keys`` replaces ``nnx.Rngs``.

    A module whose ``__call__`` takes ``train`` and ``key`` gets them. Any other is switched to training or evaluation
    with its own ``train()`` and ``eval()``, and its random streams start again from the key at every call.
    """

    def start(key: jax.Array) -> Any:
        return nnx.Rngs(_typed(key)) if keys is None else keys(key)

    @functools.cache
    def graph() -> tuple[Any, Any, bool]:
        module = nnx.eval_shape(lambda: make(start(jax.random.key(0))))
        definition, _, streams, _ = _split(module)
        return definition, streams, _takes_key(module)

    def init(key: jax.Array) -> tuple[Params, ModelState]:
        _, params, _, state = _split(make(start(key)))
        return _text_keys(nnx.to_pure_dict(params)), _text_keys(nnx.to_pure_dict(state))

    def apply(
        params: Params, state: ModelState, inputs: jax.Array, *, train: bool, key: jax.Array
    ) -> tuple[jax.Array, ModelState]:
        definition, streams, takes_key = graph()
        if jax.tree.leaves(streams):
            streams = _start_streams(streams, key)
        module = nnx.merge(definition, _flax_keys(params), streams, _flax_keys(state))
        if takes_key:
            outputs = module(inputs, train=train, key=key)
        else:
            module.train() if train else module.eval()
            outputs = module(inputs)
        changed = _split(module)[3]
        return outputs, _text_keys(nnx.to_pure_dict(changed)) if train else state

    return Model(name, init, apply, microbatch_multiple)


def with_parameters(shapes: Module, params: Params) -> Module:
    """Return the module of these shapes with these parameters, for callers of more than its forward pass.

    Raises:
        KeyError, ValueError, TypeError: the parameters are another module's.
    """
    definition, expected, streams, others = _split(shapes)
    values = _flax_keys(params)
    if jax.tree.map(jnp.shape, values) != jax.tree.map(jnp.shape, nnx.to_pure_dict(expected)):
        raise ValueError("the parameters have other names or shapes")
    merged: Module = nnx.merge(definition, values, streams, others)
    return merged


def _split(module: nnx.Module) -> tuple[Any, Any, Any, Any]:
    """Return the definition of a module, its parameters, its random streams and all other variables."""
    definition, *states = nnx.split(module, nnx.Param, nnx.RngState, ...)
    params, streams, others = states
    return definition, params, streams, others


def _takes_key(module: nnx.Module) -> bool:
    names = inspect.signature(type(module).__call__).parameters
    return "train" in names and "key" in names


def _typed(key: jax.Array) -> jax.Array:
    return key if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else jax.random.wrap_key_data(key)


def _start_streams(streams: Any, key: jax.Array) -> Any:
    """Give every random stream of a module its own key, and set its count to zero."""
    leaves, structure = jax.tree.flatten(streams)
    typed = _typed(key)
    started = [
        jax.random.fold_in(typed, index)
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        else jnp.zeros(leaf.shape, leaf.dtype)
        for index, leaf in enumerate(leaves)
    ]
    return jax.tree.unflatten(structure, started)


def _text_keys(tree: Any) -> Any:
    # A list of layers has whole numbers as keys, which checkpoints turn into text.
    return {str(key): _text_keys(value) for key, value in tree.items()} if isinstance(tree, Mapping) else tree


def _flax_keys(tree: Any) -> Any:
    if not isinstance(tree, Mapping):
        return tree
    return {int(key) if str(key).isdigit() else key: _flax_keys(value) for key, value in tree.items()}


def model_of(
    model: ModelDeclaration, make: Callable[[DType, nnx.Rngs], nnx.Module], microbatch_multiple: int = 1
) -> Model:
    """Return the model of a module that is made with the type to compute in and with random keys.

    With precision bfloat16 the layers compute in it while parameters stay float32.
    """
    precision = str(model.options["precision"])
    dtype = None if precision == PRECISIONS[0] else jnp.dtype(precision)
    made = make_model(model.name, lambda rngs: make(dtype, rngs), microbatch_multiple, Keys)
    return replace(made, precision=precision)


def in_precision(model: Model, precision: str) -> Model:
    """Return the model with its forward and backward pass in this precision; parameters and state stay as they are."""
    if precision == PRECISIONS[0]:
        return model
    dtype = jnp.dtype(precision)

    def cast(tree: Any) -> Any:
        return jax.tree.map(lambda leaf: leaf.astype(dtype) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf, tree)

    def apply(
        params: Params, state: ModelState, inputs: jax.Array, *, train: bool, key: jax.Array
    ) -> tuple[jax.Array, ModelState]:
        return model.apply(cast(params), state, cast(inputs), train=train, key=key)

    return replace(model, apply=apply, precision=precision)
