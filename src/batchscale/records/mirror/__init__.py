"""A copy of a records tree with its working files on a remote path, from which a run goes on with nothing local."""

from batchscale.records.mirror.mirror import Mirror, Mirroring, open_mirror

__all__ = ["Mirror", "Mirroring", "open_mirror"]
