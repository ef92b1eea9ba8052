"""The benchmarks of MLPerf: model, data, quality target and units of their reference convergence points.

Models, data sets and targets are those of MLCommons' training rules (mlcommons/training_policies, training_rules.adoc
and hpc_training_rules.adoc, 2026). The published files name the column of amounts ``epochs`` for most benchmarks; the
rules and the numbers themselves show that some count samples, tokens or steps.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Benchmark:
    """A benchmark. ``every`` is the amount between two evaluations by the rules; ``examples`` those of an epoch."""

    label: str
    kind: str
    model: str
    dataset: str
    optimizer: str
    goal: str
    unit: str
    batch_unit: str = "examples"
    sequence: int | None = None
    parameters: int | None = None
    examples: int | None = None
    every: float | None = None
    note: str = ""


_DETECTION = "detection"
_LM = "language model"
_SSD = Benchmark(
    "SSD-ResNet34 on COCO", _DETECTION, "ssd_resnet34", "coco", "sgd", "0.23 mAP", "epochs", "images"
)  # fmt: skip
_RETINANET = Benchmark(
    "RetinaNet on Open Images", _DETECTION, "retinanet", "openimages_mlperf", "adam", "0.34 mAP", "epochs", "images",
    every=1,
)  # fmt: skip
_DIFFUSION = Benchmark(
    "Stable Diffusion 2 on LAION", "diffusion", "stable_diffusion_v2", "laion_400m_filtered", "",
    "FID <= 90 and CLIP >= 0.15", "samples", "images", every=512_000,
    note="evaluated every 512,000 images: coarse at large batch sizes",
)  # fmt: skip
_RGAT = Benchmark(
    "RGAT on IGBH-Full", "graph", "rgat", "igbh_full", "", "72.0 % classification", "epochs", "nodes", every=0.05
)
_UNET = Benchmark(
    "U-Net3D on KiTS19", "segmentation", "unet3d", "kits19", "momentum", "0.908 mean DICE", "samples", "volumes",
    examples=168, every=20 * 168, note="stochastic: single runs differ by a factor of three",
)  # fmt: skip

BENCHMARKS: Mapping[str, Benchmark] = {
    "bert": Benchmark(
        "BERT-large on Wikipedia", "transformer", "bert_large", "wikipedia", "lamb", "0.720 masked-LM accuracy",
        "samples", "sequences", 512, 340_000_000,
    ),
    "cosmoflow": Benchmark(
        "CosmoFlow on N-body simulations", "convolutional", "cosmoflow", "cosmoflow_n_body", "sgd",
        "mean average error 0.124", "epochs", "volumes", every=1,
    ),
    "deepcam": Benchmark(
        "DeepCAM on CAM5 climate", "segmentation", "deepcam", "cam5", "lamb", "IoU 0.82", "epochs", "images", every=1
    ),
    "deepseekv3_671b": Benchmark(
        "DeepSeek-V3 671B on C4", _LM, "deepseek_v3_671b", "c4", "", "3.6 log perplexity", "samples", "sequences",
        parameters=671_000_000_000,
    ),
    "dlrm": Benchmark(
        "DLRM on Criteo", "recommendation", "dlrm", "criteo_1tb", "", "0.8025 AUC", "epochs",
        note="the size of an epoch is not stated in the rules of today",
    ),
    "dlrm_dcnv2": Benchmark(
        "DLRM-DCNv2 on Criteo", "recommendation", "dlrm_dcnv2", "criteo_multi_hot", "adagrad", "0.80275 AUC", "epochs",
        examples=4_195_197_692, every=0.05,
    ),
    "flux1": Benchmark(
        "FLUX.1 on CC12M", "diffusion", "flux1", "cc12m", "", "0.586 eval loss", "samples", "images", every=262_144
    ),
    "gnn": _RGAT,
    "rgat": _RGAT,
    "gpt3": Benchmark(
        "GPT-3 175B on C4", _LM, "gpt3_175b", "c4", "adam", "2.69 log perplexity", "tokens", "sequences", 2048,
        175_000_000_000, every=24_576 * 2048,
    ),
    "gpt_oss_20b": Benchmark(
        "GPT-OSS 20B on C4", _LM, "gpt_oss_20b", "c4", "", "3.34 log perplexity", "samples", "sequences",
        parameters=20_000_000_000, every=12_288,
    ),
    "llama2_70b_lora": Benchmark(
        "Llama 2 70B (LoRA) on GovReport", _LM, "llama2_70b_lora", "scrolls_govreport", "", "0.925 eval loss",
        "samples", "sequences", 8192, 70_000_000_000, every=384, note="finetuning of adapters",
    ),
    "llama31_405b": Benchmark(
        "Llama 3.1 405B on C4", _LM, "llama31_405b", "c4", "", "5.6 log perplexity", "samples", "sequences", 8192,
        405_000_000_000, every=18_432, note="starts from a trained checkpoint",
    ),
    "llama31_8b": Benchmark(
        "Llama 3.1 8B on C4", _LM, "llama31_8b", "c4", "", "3.3 log perplexity", "samples", "sequences", 8192,
        8_000_000_000, every=12_288,
    ),
    "maskrcnn": Benchmark(
        "Mask R-CNN on COCO", _DETECTION, "maskrcnn", "coco", "momentum", "0.377 box AP and 0.339 mask AP", "epochs",
        "images", every=1,
    ),
    "oc20": Benchmark(
        "DimeNet++ on Open Catalyst", "graph", "dimenet_pp", "oc20_s2ef_2m", "", "forces MAE 0.036", "epochs",
        "structures", every=1,
    ),
    "openfold": Benchmark(
        "OpenFold on OpenProteinSet", "other", "openfold", "openproteinset", "adam", "lDDT-Cα >= 0.8", "samples",
        "proteins",
    ),
    "qwen35_397b_grpo": Benchmark(
        "Qwen3.5 397B (GRPO)", _LM, "qwen35_397b_grpo", "grpo_prompts", "", "as in the benchmark", "samples",
        "rollouts", parameters=397_000_000_000, note="reinforcement learning; all runs of a size are equal",
    ),
    "resnet": Benchmark(
        "ResNet-50 on ImageNet", "convolutional", "resnet_50", "imagenet", "lars", "75.9 % accuracy", "epochs",
        "images", parameters=25_557_032, examples=1_281_167, every=4,
        note="evaluated every 4 epochs, with a varying offset",
    ),
    "retinanet": _RETINANET,
    "rnnt": Benchmark(
        "RNN-T on LibriSpeech", "recurrent", "rnnt", "librispeech", "lamb", "0.058 word error rate", "epochs",
        "utterances", every=1,
    ),
    "sd": replace(_DIFFUSION, unit="steps", every=None, note=f"published in steps; {_DIFFUSION.note}"),
    "ssd": _RETINANET,
    "stable_diffusion": _DIFFUSION,
    "unet3d": _UNET,
}  # fmt: skip


def find_benchmark(name: str, version: tuple[int, ...]) -> Benchmark:
    """Return the benchmark of this name as it was in a version (numbers of training_X.Y.Z)."""
    if name == "ssd" and version < (2,):
        return _SSD
    if name == "gpt3" and version >= (4, 1):
        return replace(
            BENCHMARKS[name], note="one run at 3,072 is published with 1.3791e10 tokens: an outlier by ten times"
        )
    if name == "unet3d" and version < (3, 1):
        return replace(_UNET, unit="epochs", every=20)
    return BENCHMARKS[name]
