"""Files that start a training with suggested values: Megatron-LM, OLMo-core, nanochat and Hugging Face's Trainer.

Option names are those of the programs in the middle of 2026. A program without batch-size schedules gets constant ones
only.
"""

import itertools
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from batchscale.errors import PlanningError, one_line, suggest_names
from batchscale.planning.launch import LaunchPlan

DIGITS = 4


@dataclass(frozen=True)
class DeviceShare:
    """The data-parallel devices of a training, and the sequences that each takes at once."""

    devices: int = 1
    micro_batch_size: int = 1


def launch_file(launch: LaunchPlan, name: str, share: DeviceShare | None = None) -> str:
    """Return the text of a file for a program.

    Args:
        launch: The suggested values.
        name: megatron-lm, olmo-core, nanochat or huggingface.
        share: The devices; None: one.

    Raises:
        PlanningError: There is no such program, or it cannot train with this schedule.
    """
    if name not in PROGRAMS:
        raise PlanningError(f"No launch file is called '{one_line(name)}'; {suggest_names(name, PROGRAMS)}")
    share = share or DeviceShare()
    small, at_once = min(stage.batch_size for stage in launch.stages), share.devices * share.micro_batch_size
    if small % at_once:
        raise PlanningError(
            f"The devices must share every batch evenly. Found {share.devices} devices that take "
            f"{share.micro_batch_size} sequences at once, and a batch of {small}; pass --multiple-of {at_once}"
            f"{'' if len(launch.stages) == 1 else ' times the factor between the smallest and the largest batch'}."
        )
    return PROGRAMS[name](launch, share)


def _number(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def _megatron(launch: LaunchPlan, share: DeviceShare) -> str:
    request = launch.request
    if len(launch.stages) == 1:
        batch = f"--global-batch-size {launch.stages[0].batch_size}"
    else:
        pairs = " ".join(f"{stage.start}:{stage.batch_size}" for stage in launch.stages)
        batch = f'--step-batch-size-schedule "{pairs}"'
    lines = [
        "# Megatron-LM: thresholds of the schedule are tokens, batch sizes are sequences.",
        f"--seq-length {request.sequence}",
        f"--micro-batch-size {share.micro_batch_size}",
        batch,
        f"--train-samples {math.ceil(request.tokens / request.sequence)}",
        f"--lr-decay-samples {math.ceil(request.tokens / request.sequence)}",
        f"--lr {_number(launch.value('learning_rate'))}",
        f"--adam-beta2 {_number_near_1(launch.value('beta2'))}",
        f"--weight-decay {_number(launch.value('weight_decay'))}",
    ]
    return "\n".join(lines) + "\n"


def _olmo_core(launch: LaunchPlan, _share: DeviceShare) -> str:
    request, stages = launch.request, launch.stages
    sizes = [stage.batch_size * request.sequence for stage in stages]
    for small, large in itertools.pairwise(sizes):
        if small == large or max(small, large) % min(small, large):
            raise PlanningError(
                f"OLMo-core changes a batch size by whole factors only. Found {small:,} and {large:,} tokens; choose "
                "other --stages."
            )
    # The callback multiplies the rate by √(new/old) at each change: the first stage starts lower.
    rate = launch.value("learning_rate") * math.sqrt(sizes[0] / (launch.batch_size * request.sequence))
    lines = [
        '"""OLMo-core: the parts of an experiment that the batch size decides. Batch sizes are in tokens."""',
        "",
        "from olmo_core.optim import AdamWConfig",
        "from olmo_core.train import Duration",
        "from olmo_core.train.callbacks import BatchSizeSchedulerCallback",
        "",
        f"SEQUENCE_LENGTH = {request.sequence}",
        f"GLOBAL_BATCH_SIZE = {sizes[0]}",
        f"MAX_DURATION = Duration.tokens({round(request.tokens)})",
        f"OPTIM = AdamWConfig(lr={_number(rate)}, betas=(0.9, {_number_near_1(launch.value('beta2'))}), "
        f"weight_decay={_number(launch.value('weight_decay'))})",
    ]
    if len(stages) > 1:
        starts = ", ".join(f"Duration.tokens({stage.start})" for stage in stages)
        lines += [
            "# The callback scales the rate by √(new/old). The learning-rate scheduler needs tokens as its units.",
            f"BATCH_SIZE_SCHEDULER = BatchSizeSchedulerCallback(batch_sizes={sizes}, schedule=[{starts}])",
        ]
    return "\n".join(lines) + "\n"


def _nanochat(launch: LaunchPlan, _share: DeviceShare) -> str:
    _check_constant(launch, "nanochat")
    tokens = launch.stages[0].batch_size * launch.request.sequence
    power = 2 ** round(math.log2(tokens))
    steps = math.ceil(launch.request.tokens / power)
    lines = [
        "# nanochat: batches are powers of two in tokens. It scales its own rates and weight decay by the batch.",
        f"python -m scripts.base_train --max-seq-len={launch.request.sequence} --total-batch-size={power} "
        f"--num-iterations={steps}",
    ]
    return "\n".join(lines) + "\n"


def _huggingface(launch: LaunchPlan, share: DeviceShare) -> str:
    _check_constant(launch, "Hugging Face's Trainer")
    batch = launch.stages[0].batch_size
    values = {
        "per_device_train_batch_size": share.micro_batch_size,
        "gradient_accumulation_steps": batch // (share.devices * share.micro_batch_size),
        "max_steps": launch.steps,
        "learning_rate": _number(launch.value("learning_rate")),
        "adam_beta2": _number_near_1(launch.value("beta2")),
        "weight_decay": _number(launch.value("weight_decay")),
    }
    return json.dumps(values, indent=2) + "\n"


def _number_near_1(value: float) -> float:
    return float(f"{value:.5f}") if value < 0.99995 else float(f"{value:.8f}")


def _check_constant(launch: LaunchPlan, program: str) -> None:
    if len(launch.stages) > 1:
        raise PlanningError(
            f"{program} has no batch-size schedule. Found a schedule of {len(launch.stages)} stages; pass --schedule "
            "constant, or export for megatron-lm or olmo-core."
        )


PROGRAMS: Mapping[str, Callable[[LaunchPlan, DeviceShare], str]] = {
    "megatron-lm": _megatron,
    "olmo-core": _olmo_core,
    "nanochat": _nanochat,
    "huggingface": _huggingface,
}
