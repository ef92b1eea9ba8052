"""A tree from its mirror: on a machine that has nothing of it."""

import shutil
from pathlib import Path

from batchscale.errors import RecordsError
from batchscale.records.durable import storing
from batchscale.records.mirror.manifest import MirroredFile, describe
from batchscale.records.mirror.store import RemoteStore


def restore_tree(root: Path, files: dict[str, MirroredFile], store: RemoteStore) -> int:
    """Write the files of a mirror to ``root``, which must be empty or missing; all of them or none. Their number.

    Raises:
        RecordsError: something is there already, or the mirror lacks a file or has another one in its place.
        StorageError: it cannot be read or written.
    """
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise RecordsError(f"{root}: a tree is restored into an empty folder. Found something there.")
    beside = root.with_name(f"{root.name}.restoring")
    with storing("restoring a mirror", root):
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir(parents=True)
        try:
            for name, entry in files.items():
                content = store.get(entry.object_name)
                if content is None or describe(content) != entry:
                    raise RecordsError(
                        f"{store.url}: the file {name} of the mirror is {'missing' if content is None else 'damaged'}. "
                        "Give another --mirror to begin anew, or restore the bucket."
                    )
                path = beside / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            if root.exists():
                root.rmdir()
            beside.replace(root)
        finally:
            shutil.rmtree(beside, ignore_errors=True)
    return len(files)
