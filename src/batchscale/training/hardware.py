"""What the engine trains on, as trials record it."""

import jax

from batchscale.machine import name_processor
from batchscale.records.metadata.trial import Hardware


def describe_hardware(num_devices: int = 1, num_hosts: int = 1) -> Hardware:
    """So many devices of the kind that this process has; a processor by its own name, which JAX does not know."""
    device = jax.local_devices()[0]
    kind = name_processor() if device.platform == "cpu" else device.device_kind
    return Hardware(kind, device.platform, num_devices, num_hosts)
