"""A copy of a records tree with its working files on a remote path, from which a run goes on with nothing local."""

from batchscale.records.mirror.mirror import Mirror, Mirroring, open_mirror
from batchscale.records.mirror.store import RemoteStore

__all__ = ["Mirror", "Mirroring", "RemoteStore", "open_mirror"]
