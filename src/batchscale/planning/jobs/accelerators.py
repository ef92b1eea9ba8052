"""How the systems that start jobs call accelerators."""

from batchscale.errors import PlanningError, one_line
from batchscale.planning.step_times import device_key

VERTEX = {
    "t4": "NVIDIA_TESLA_T4",
    "v100": "NVIDIA_TESLA_V100",
    "p100": "NVIDIA_TESLA_P100",
    "p4": "NVIDIA_TESLA_P4",
    "l4": "NVIDIA_L4",
    "a100": "NVIDIA_TESLA_A100",
    "a10040gb": "NVIDIA_TESLA_A100",
    "a10080gb": "NVIDIA_A100_80GB",
    "h100": "NVIDIA_H100_80GB",
}
_PROCESSORS = ("cpu", "x86", "amd64", "arm", "aarch", "intel", "epyc", "xeon")


def is_processor(device: str) -> bool:
    """Whether a device is the host's own processor: no accelerator is asked for.

    >>> is_processor("x86_64"), is_processor("NVIDIA T4")
    (True, False)
    """
    return any(name in device.casefold() for name in _PROCESSORS)


def kubernetes_resource(device: str) -> str | None:
    """The extended resource that a pod asks for; None for the host's processor."""
    if is_processor(device):
        return None
    if device_key(device).startswith("tpu"):
        return "google.com/tpu"
    return "amd.com/gpu" if "amd" in device.casefold() or "mi" in device_key(device)[:2] else "nvidia.com/gpu"


def skypilot_name(device: str) -> str:
    """SkyPilot's name of an accelerator: without its maker's.

    >>> skypilot_name("NVIDIA A100 80GB")
    'A100-80GB'
    """
    words = [word for word in device.split() if word.casefold() not in ("nvidia", "tesla", "amd")]
    return "-".join(words)


def vertex_name(device: str) -> str:
    """Vertex AI's name of an accelerator.

    Raises:
        PlanningError: it is none that we know Vertex AI to have.
    """
    key = device_key(device)
    if key not in VERTEX:
        raise PlanningError(
            f"Vertex AI has accelerators such as {', '.join(sorted(VERTEX)[:6])}. Found {one_line(repr(device))}; "
            "choose another format."
        )
    return VERTEX[key]
