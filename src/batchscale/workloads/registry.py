"""From the name of a workload to the workload itself: data, model, loss, metrics, optimizer."""

from pathlib import Path

from batchscale.spec.experiment import WorkloadSpec
from batchscale.workloads.catalogue import find_parts
from batchscale.workloads.datasets.declaration import load_dataset
from batchscale.workloads.metrics.declaration import task_metrics
from batchscale.workloads.models.declaration import Shape
from batchscale.workloads.update import make_update
from batchscale.workloads.user.registration import find_user_workload
from batchscale.workloads.workload import Dataset, Workload


def get_workload(spec: WorkloadSpec, data_dir: Path | None = None, dataset: Dataset | None = None) -> Workload:
    """The workload of an experiment, with its data read.

    ``dataset`` takes the place of the data set of that name: the same task, other examples.

    Raises:
        UnknownNameError: a part or an option that does not exist.
        SpecError: parts that do not fit together.
        DataError: data that is missing or damaged; the message says what to run.
    """
    user = find_user_workload(spec.name, spec.file)
    if user is not None:
        from batchscale.workloads.user.build import build_user_workload  # brings flax, which not every model needs

        return build_user_workload(user, spec, data_dir)
    parts = find_parts(spec)
    if dataset is None:
        dataset = load_dataset(spec.name.dataset, spec.dataset_options, data_dir)
    task, options = parts.dataset.task, spec.dataset_options
    return Workload(
        name=spec.name,
        dataset=dataset,
        model=parts.model.for_data(Shape(dataset.input_shape, dataset.num_outputs, options)),
        loss=task.make_loss(options),
        metrics=task_metrics(task, options),
        defaults=parts.tunables.defaults,
        space=parts.tunables.space,
        make_update=make_update(parts.tunables),
    )
