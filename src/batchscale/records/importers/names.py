"""The names that people give to batch sizes, seeds, steps and metrics, and the metrics' names in records."""

import re

from batchscale.spec.durations import Unit

BATCH_SIZE_NAMES = (
    "batch_size",
    "batchsize",
    "global_batch_size",
    "total_batch_size",
    "effective_batch_size",
    "train_batch_size",
    "total_train_batch_size",
    "bs",
    "batch",
)
PER_DEVICE = ("per_device", "per_gpu", "per_replica", "per_worker", "local_batch", "micro_batch", "microbatch")
SEED_NAMES = ("seed", "random_seed", "rng_seed", "manual_seed", "random_state")
COUNTER_NAMES = ("trial_id", "trial", "run_id", "run", "id", "index", "number", "rank")
_STEP_UNITS = {
    **dict.fromkeys(
        ("global_step", "step", "steps", "num_steps", "train_step", "training_step", "iteration", "iterations", "iter"),
        Unit.STEPS,
    ),
    **dict.fromkeys(("update", "updates", "num_updates", "optimizer_step"), Unit.STEPS),
    **dict.fromkeys(
        ("examples", "num_examples", "samples", "num_samples", "examples_seen", "samples_seen"), Unit.EXAMPLES
    ),
    **dict.fromkeys(("epoch", "epochs", "num_epochs"), Unit.EPOCHS),
}
_SPLITS = {
    **dict.fromkeys(("train", "training", "tr"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "eval", "evaluation", "dev"), "val"),
    **dict.fromkeys(("test", "testing"), "test"),
}
_OWN_COLUMNS = (
    "_runtime",
    "_timestamp",
    "_wandb",
    "timestamp",
    "wall_time",
    "walltime",
    "time",
    "runtime",
    "relative_time",
)
_SYSTEM = ("system/", "system.", "gpu/", "gpu.")


def plain_name(name: str) -> str:
    """Return the last part of a dotted name, in lower case with underscores.

    >>> plain_name("trainer/Global-Step"), plain_name("optimizer.lr"), plain_name("batchSize")
    ('global_step', 'lr', 'batch_size')
    """
    last = re.split(r"[./]", name)[-1]
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", last)
    return re.sub(r"[^a-z0-9]+", "_", spaced.lower()).strip("_")


def is_batch_size_name(name: str) -> bool:
    """True if a value of this name is the batch size over all devices."""
    return plain_name(name) in BATCH_SIZE_NAMES and not is_per_device_name(name)


def is_per_device_name(name: str) -> bool:
    """True if a value of this name is a part of the batch: that of one device, or a microbatch."""
    text = re.sub(r"[^a-z0-9]+", "_", name.lower())
    return "batch" in text and any(part in text for part in PER_DEVICE)


def is_chosen_name(name: str) -> bool:
    """True if a value of this name is surely chosen before training: a batch size or a seed."""
    return is_batch_size_name(name) or is_per_device_name(name) or plain_name(name) in SEED_NAMES


def step_unit(name: str) -> Unit | None:
    """Return the unit of a column that counts the progress of training, None for other columns.

    >>> step_unit("trainer/global_step"), step_unit("epoch"), step_unit("loss")
    (<Unit.STEPS: 'steps'>, <Unit.EPOCHS: 'epochs'>, None)
    """
    return _STEP_UNITS.get(plain_name(name)) if find_split(name) in (None, "train") else None


def is_step_name(name: str) -> bool:
    """True if a column counts the progress of training."""
    return step_unit(name) is not None


def is_measured_name(name: str) -> bool:
    """True if a column is surely no value that was chosen before training."""
    if is_batch_size_name(name) or is_per_device_name(name):  # train_batch_size has a split in its name
        return False
    return find_split(name) is not None or is_step_name(name) or is_own_name(name)


def is_own_name(name: str) -> bool:
    """True if a tool recorded the column by itself: clocks, counters, the load of the machine."""
    return name.startswith("_") or name.lower() in _OWN_COLUMNS or name.lower().startswith(_SYSTEM)


def find_split(name: str) -> str | None:
    """Return the split that a metric's name has at its beginning or end.

    >>> find_split("eval/loss"), find_split("loss_train"), find_split("valid_accuracy"), find_split("loss")
    ('val', 'train', 'val', None)
    """
    parts = _parts(name)
    if len(parts) < 2:
        return None
    return _SPLITS.get(parts[0]) or _SPLITS.get(parts[-1])


def split_of_folder(name: str) -> str | None:
    """Return the split that a folder is named by, as in ``run/train`` and ``run/validation``; None for other names."""
    return _SPLITS.get(name.lower())


def record_name(name: str, default_split: str) -> str | None:
    """Return a metric's name in records, ``split/metric``; None if nothing is left of it.

    >>> record_name("eval_loss", "train"), record_name("Loss/Test", "val"), record_name("top-1 error", "val")
    ('val/loss', 'test/loss', 'val/top_1_error')
    """
    parts = _parts(name)
    split = find_split(name)
    if split is not None:
        parts = parts[1:] if parts[0] in _SPLITS else parts[:-1]
    text = "_".join(parts).strip("_")
    if not text or not text[0].isalpha():
        text = f"metric_{text}" if text else ""
    return f"{split or default_split}/{text}" if text else None


def safe_folder(text: str) -> str:
    """Return a text as a name of folders: letters, digits and ``_ . + -``.

    >>> safe_folder("CIFAR 10 (small)"), safe_folder("--")
    ('CIFAR_10_small', '')
    """
    return re.sub(r"[^A-Za-z0-9_.+-]+", "_", text).strip("_.+-")[:100]


def _parts(name: str) -> list[str]:
    return [part for part in re.split(r"[^a-z0-9]+", name.lower()) if part]
