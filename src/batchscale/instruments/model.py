"""The DDSP autoencoder in three sizes: the published one, one for two cores, one for tests and quick curves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from batchscale.errors import SpecError
from batchscale.instruments.sound.features import FRAMES_PER_S
from batchscale.instruments.task import SOUND
from batchscale.spec.experiment import Options
from batchscale.workloads.models.declaration import ModelDeclaration, Shape

if TYPE_CHECKING:
    from batchscale.workloads.workload import Model


def _build(model: ModelDeclaration, shape: Shape) -> Model:
    from batchscale.instruments.synthesis.network import Ddsp, DdspSizes, Sampling
    from batchscale.workloads.models.nnx_model import model_of

    frames, features = shape.inputs
    hop = shape.num_outputs // frames
    sampling = Sampling(hop, hop * FRAMES_PER_S, features - 2)
    sizes = DdspSizes(**{name: value for name, value in model.sizes.items() if name != "precision"})
    return model_of(model, lambda dtype, rngs: Ddsp(sizes, sampling, dtype=dtype, rngs=rngs))


def _check_bands(model: str, options: Options) -> None:
    bands = options["noise_bands"]
    if isinstance(bands, int) and bands < 2:
        raise SpecError(f"model.noise_bands of {model} must be at least 2: one at 0 Hz, one at the top. Found {bands}.")


def _declare(name: str, width: int, harmonics: int, noise_bands: int, reverb: int, layers: int) -> ModelDeclaration:
    options = {
        "width": width,
        "layers": layers,
        "hidden": width,
        "harmonics": harmonics,
        "noise_bands": noise_bands,
        "reverb": reverb,
        "z": 16,
    }
    tiny = {"width": 8, "layers": 1, "hidden": 8, "harmonics": 6, "noise_bands": 5, "reverb": 64, "z": 2}
    return ModelDeclaration(name, (SOUND,), options, _build, tiny, schedule="exponential", check=_check_bands)


PUBLISHED = _declare("ddsp", 512, 60, 65, 48_000, 3)
SMALL = _declare("ddsp_small", 128, 60, 65, 16_000, 2)
TINY = _declare("ddsp_tiny", 64, 24, 17, 4_000, 2)
