"""From a records tree of ``batchscale train`` to an instrument: parameters, settings and statistics in one folder."""

from pathlib import Path

from batchscale.errors import RunError, SpecError, one_line
from batchscale.records.tree.layout import StudyPaths
from batchscale.spec.experiment import WorkloadSpec
from batchscale.training.state_store import read_trained
from batchscale.workloads.audio.instrument import Instrument, write_instrument
from batchscale.workloads.audio.prepared import read_prepared
from batchscale.workloads.catalogue import find_parts
from batchscale.workloads.tasks import Task


def export_instrument(
    spec: WorkloadSpec, records: Path, out: Path, batch_size: int | None = None, trial_id: int | None = None
) -> Instrument:
    """Writes what ``batchscale train --out RECORDS`` trained as an instrument to the folder ``out``.

    Args:
        spec: The workload that was trained, as its experiment file says.
        records: The records tree, with its checkpoints.
        out: A new folder.
        batch_size: Which study; by default the only one of the workload.
        trial_id: Which trial; by default the last one.

    Raises:
        SpecError: The workload is not one of sound.
        RunError: There are no checkpoints, or those of several batch sizes.
        DataError: The prepared recordings are gone, or ``out`` has something in it.
    """
    task = find_parts(spec).dataset.task
    if task is not Task.SOUND:
        raise SpecError(f"An instrument comes of a workload of sound. Found {spec.name}, whose task is '{task}'.")
    size = _only_size(spec, records) if batch_size is None else batch_size
    trained = read_trained(StudyPaths.of(records, spec.name, size).checkpoints, trial_id)
    options = spec.dataset_options
    mfccs = options.get("mfccs", 0)
    instrument = Instrument(
        model=spec.name.model,
        model_options=dict(spec.model_options),
        mfccs=mfccs if isinstance(mfccs, int) else 0,
        statistics=read_prepared(Path(str(options["path"])).expanduser()).statistics,
        parameters=trained.parameters,
        trained={"workload": str(spec.name), "batch_size": size, "trial": trained.trial_id, "steps": trained.step},
    )
    write_instrument(out, instrument)
    return instrument


def _only_size(spec: WorkloadSpec, records: Path) -> int:
    folder = records / spec.name.dataset / spec.name.model / spec.name.optimizer
    found = sorted(int(one.name) for one in folder.iterdir() if one.name.isdigit()) if folder.is_dir() else []
    if len(found) != 1:
        raise RunError(
            f"{one_line(folder, 300)} must hold one batch size, or --batch-size says which. Found {found or 'none'}."
        )
    return found[0]
