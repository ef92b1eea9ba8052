"""The decoder of the Transformer as a language model, in the paper's four sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from batchscale.errors import SpecError
from batchscale.spec.experiment import Options
from batchscale.workloads.models.declaration import TOKENS, ModelDeclaration, Shape

if TYPE_CHECKING:
    from batchscale.workloads.workload import Model


def _build(model: ModelDeclaration, shape: Shape) -> Model:
    from batchscale.workloads.models.architectures.transformer import Transformer
    from batchscale.workloads.models.nnx_model import model_of

    sizes = model.sizes
    return model_of(
        model,
        lambda dtype, rngs: Transformer(
            shape.num_outputs,
            sizes["width"],
            sizes["heads"],
            sizes["filter_width"],
            sizes["layers"],
            rate=sizes["dropout"],
            dtype=dtype,
            rngs=rngs,
        ),
    )


def _check_heads(model: str, options: Options) -> None:
    width, heads = options["width"], options["heads"]
    if isinstance(width, int) and isinstance(heads, int) and width % heads:
        raise SpecError(f"model.width of {model} must be a multiple of its {heads} heads. Found {width}.")


def _declare(size: str, label: str, width: int, heads: int, filter_width: int, layers: int) -> ModelDeclaration:
    options = {"width": width, "heads": heads, "filter_width": filter_width, "layers": layers, "dropout": 0.1}
    tiny = {"width": 8, "heads": 2, "filter_width": 16, "layers": 1}
    return ModelDeclaration(f"transformer_{size}", TOKENS, options, _build, tiny, check=_check_heads, label=label)


BASE = _declare("base", "Transformer", 512, 8, 2048, 6)
SHALLOW = _declare("shallow", "Transformer Shallow", 512, 8, 2048, 2)
NARROW_AND_SHALLOW = _declare("narrow_and_shallow", "Transformer Narrow & Shallow", 256, 4, 1024, 2)
WIDE = _declare("wide", "Transformer Wide", 1024, 16, 4096, 6)
