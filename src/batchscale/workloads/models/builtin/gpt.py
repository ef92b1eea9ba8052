"""Decoder-only language models with RMSNorm and rotary positions, in sizes by their parameters on bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from batchscale.errors import SpecError
from batchscale.spec.experiment import Options
from batchscale.workloads.models.declaration import TOKENS, ModelDeclaration, Shape

if TYPE_CHECKING:
    from batchscale.workloads.workload import Model


def _build(model: ModelDeclaration, shape: Shape) -> Model:
    from batchscale.workloads.models.architectures.gpt import Gpt
    from batchscale.workloads.models.nnx_model import model_of

    sizes = model.sizes
    return model_of(
        model,
        lambda dtype, rngs: Gpt(
            shape.num_outputs,
            sizes["width"],
            sizes["heads"],
            sizes["filter_width"],
            sizes["layers"],
            swiglu=sizes["swiglu"],
            tied=sizes["tied"],
            rate=sizes["dropout"],
            dtype=dtype,
            rngs=rngs,
        ),
    )


def _check_heads(model: str, options: Options) -> None:
    width, heads = options["width"], options["heads"]
    if isinstance(width, int) and isinstance(heads, int) and width % (2 * heads):
        raise SpecError(
            f"model.width of {model} must be a multiple of twice its {heads} heads: rotary positions turn pairs of "
            f"channels. Found {width}."
        )


def _declare(size: str, width: int, layers: int) -> ModelDeclaration:
    options: Options = {
        "width": width,
        "heads": width // 32,
        "filter_width": 4 * width,
        "layers": layers,
        "swiglu": False,
        "tied": True,
        "dropout": 0.0,
    }
    tiny: Options = {"width": 8, "heads": 2, "filter_width": 16, "layers": 1}
    return ModelDeclaration(
        f"gpt_{size}", TOKENS, options, _build, tiny, check=_check_heads, label=f"GPT {size.upper()}"
    )


SIZES = (
    _declare("100k", 64, 2),
    _declare("300k", 96, 3),
    _declare("1m", 128, 5),
    _declare("3m", 192, 7),
    _declare("10m", 320, 8),
)
