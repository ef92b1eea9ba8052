"""How the examples of a batch lie on devices: contiguous slices of the batch's own order. Free of JAX.

A batch is cut into shards of one size; the last ones may be smaller or empty. A boundary is a multiple of the ghost
batch size, so that a ghost batch is never cut in two. Each device holds as many shards, one after the other.
"""

from dataclasses import dataclass

LOGICAL_SHARDS = 8
"""The shards of an exact sum, whatever the number of devices: what they give is added in their order."""


@dataclass(frozen=True)
class Shards:
    """The slices of a batch: ``count`` of ``size`` examples each, over ``num_devices`` devices.

    ``exact``: gradients are added shard by shard in a fixed order, so that the sum has the same bits on any number of
    devices.
    """

    batch_size: int
    count: int
    size: int
    num_devices: int
    exact: bool = False

    @property
    def per_device(self) -> int:
        """The shards of one device."""
        return -(-self.count // self.num_devices)

    @property
    def rows_per_device(self) -> int:
        """The places for examples on one device, of which some may be empty."""
        return self.per_device * self.size

    @property
    def counts(self) -> tuple[int, ...]:
        """The examples of each shard, with those that only fill up the last devices."""
        places = range(self.num_devices * self.per_device)
        return tuple(min(self.size, max(0, self.batch_size - i * self.size)) for i in places)

    @property
    def num_busy(self) -> int:
        """The devices that have examples at all."""
        return -(-self.batch_size // self.rows_per_device)


def cut_batch(batch_size: int, num_devices: int, multiple: int = 1, exact: bool = False) -> Shards:
    """The shards of a batch on so many devices; a shard holds whole multiples, which are the ghost batches.

    >>> cut_batch(10, num_devices=4).counts
    (3, 3, 3, 1)
    >>> cut_batch(100, num_devices=2, multiple=32).counts
    (64, 36)
    >>> cut_batch(10, num_devices=2, exact=True).counts
    (2, 2, 2, 2, 2, 0, 0, 0)
    """
    count = LOGICAL_SHARDS if exact else num_devices
    size = -(-batch_size // (count * multiple)) * multiple
    return Shards(batch_size, count, size, num_devices, exact)
