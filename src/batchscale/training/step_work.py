"""The work of one training step of a JAX program: operations, bytes moved and memory, without running it.

XLA's cost analysis counts the body of a loop once. Matrix products and convolutions inside ``scan`` are therefore
counted in the traced program too, once and with the loop's length, and the difference is added.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from batchscale.errors import RunError
from batchscale.training.loop import StepConfig, make_step
from batchscale.training.state import init_trial
from batchscale.training.training_data import make_probe
from batchscale.workloads.models.layers.conv import ordinary_products
from batchscale.workloads.workload import Workload

EXAMPLE_RATE = 0.5  # of metaparameters without a default: the work does not depend on their values


@dataclass(frozen=True)
class ProgramWork:
    """The work of a compiled program.

    Attributes:
        flops: Operations.
        bytes_moved: Bytes that it reads from and writes to memory.
        memory_bytes: Arguments, results and temporary values.
        convolutions: The share of convolutions in the operations of products.
    """

    flops: float
    bytes_moved: float
    memory_bytes: float
    convolutions: float


def count_work(program: Callable[..., Any], *arguments: Any) -> ProgramWork:
    """Return the work of a JAX function that takes one step: loss, gradient and update.

    Args:
        program: A traceable function.
        arguments: Arrays, or their shapes as ``jax.ShapeDtypeStruct``.

    Raises:
        RunError: XLA has no count of operations for this program.
    """
    counts = list(_products(jax.make_jaxpr(program)(*arguments).jaxpr))
    once = sum(flops for flops, _, _ in counts)
    whole = sum(flops * times for flops, times, _ in counts)
    convolved = sum(flops * times for flops, times, is_convolution in counts if is_convolution)
    lowered = jax.jit(program).lower(*arguments)
    compiled = lowered.compile()
    flops = _entry(lowered.cost_analysis(), "flops")
    if not (math.isfinite(flops) and flops > 0):
        raise RunError(f"The operations of a step must be countable. XLA counts {flops:g} for this program.")
    memory = compiled.memory_analysis()
    used = 0.0 if memory is None else memory.argument_size_in_bytes + memory.temp_size_in_bytes
    moved = max(_entry(compiled.cost_analysis(), "bytes accessed"), 0.0)
    return ProgramWork(flops + whole - once, moved, float(used), convolved / whole if whole else 0.0)


def _entry(analysis: Any, name: str) -> float:
    """Return an entry of a cost analysis, which some backends return in a list."""
    table = analysis[0] if isinstance(analysis, list | tuple) and analysis else analysis
    return float((table or {}).get(name, math.nan))


def product_flops(program: Callable[..., Any], *arguments: Any) -> float:
    """Return the operations of the matrix products and convolutions that the results of a JAX function depend on."""
    return sum(flops * times for flops, times, _ in _products(jax.make_jaxpr(program)(*arguments).jaxpr))


def _products(jaxpr: Any, needed: Sequence[bool] | None = None, times: int = 1) -> Iterator[tuple[float, int, bool]]:
    """Yield the operations of each product, how often loops repeat it, and True for a convolution.

    Products that no ``needed`` result depends on are left out, as in the compiled program: a custom gradient also lists
    the one for a first layer's inputs, and its loops the forward pass.
    """
    needed = [True] * len(jaxpr.outvars) if needed is None else needed
    wanted = {id(out) for out, is_needed in zip(jaxpr.outvars, needed, strict=True) if is_needed}
    for equation in reversed(jaxpr.eqns):
        used = [id(out) in wanted for out in equation.outvars]
        if not any(used):
            continue
        wanted.update(map(id, equation.invars))
        name = equation.primitive.name
        out = float(np.prod(equation.outvars[0].aval.shape))
        if name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            yield 2 * out * float(np.prod([equation.invars[0].aval.shape[axis] for axis in contracted])), times, False
        elif name == "conv_general_dilated":
            kernel = equation.invars[1].aval.shape
            features = kernel[equation.params["dimension_numbers"].rhs_spec[0]]
            yield 2 * out * float(np.prod(kernel)) / features, times, True
        repeats = times * int(equation.params.get("length", 1)) if name == "scan" else times
        carried = len(used) if name == "while" else equation.params.get("num_carry", 0)  # the next round needs these
        used[:carried] = [True] * carried
        for inner in _inner(equation.params):
            yield from _products(inner, used if len(inner.outvars) == len(used) else None, repeats)


def _inner(params: dict[str, Any]) -> Iterator[Any]:
    for value in params.values():
        for item in value if isinstance(value, list | tuple) else (value,):
            inner = getattr(item, "jaxpr", item)
            if hasattr(inner, "eqns"):
                yield inner


def workload_work(workload: Workload, batch_size: int) -> tuple[ProgramWork, int, str]:
    """Return the work of a step of a workload at a batch size, its parameters, and its kind for estimates.

    The kind is "convolution" if convolutions are most of its products, "language" if it reads tokens, else "other".
    """
    probe = make_probe(workload.dataset)
    values = {name: jnp.float32(value or EXAMPLE_RATE) for name, value in workload.defaults.items()}
    state = jax.eval_shape(
        lambda seed, metaparameters, batch: init_trial(workload, seed, metaparameters, batch, 1.0),
        jnp.uint32(0),
        values,
        probe,
    )
    batch = jax.eval_shape(
        lambda: {name: jnp.zeros((batch_size, *array.shape[1:]), array.dtype) for name, array in probe.items()}
    )
    step = make_step(workload, StepConfig(batch_size, batch_size, batch_size, fed=True), alone=True)

    def program(state: Any, batch: Any) -> Any:
        return step(state, lambda _start, _size: batch, jnp.bool_(True))

    with ordinary_products():  # the work elsewhere, too
        work = count_work(program, state, batch)
    parameters = sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(state.params))
    reads_tokens = jnp.issubdtype(probe["inputs"].dtype, jnp.integer) and probe["inputs"].ndim == 2
    kind = "convolution" if work.convolutions > 0.5 else "language" if reads_tokens else "other"
    return work, parameters, kind
