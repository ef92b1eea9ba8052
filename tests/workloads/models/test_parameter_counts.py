"""Parameter counts at the paper's sizes, worked out here by hand; shapes only, no memory."""

import math

import jax
import pytest

from batchscale.workloads.models.declaration import Shape, find_model, model_names

MNIST, CIFAR, IMAGENET, WORDS = (28, 28, 1), (32, 32, 3), (224, 224, 3), (64,)
LM1B = 32_000
BYTES = 258
FRAMES, SAMPLES = (250, 2), 16_000  # a second of sound


def count(name, shape, num_outputs, **options):
    model = find_model(name, options).for_data(Shape(shape, num_outputs))
    params, _ = jax.eval_shape(model.init, jax.random.key(0))
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(params))


def dense(inputs, outputs):
    return inputs * outputs + outputs


def conv(size, inputs, outputs):
    return size * size * inputs * outputs + outputs


def cnn(first, second, units):
    return conv(5, 1, first) + conv(5, first, second) + dense(7 * 7 * second, units) + dense(units, 10)


def bottlenecks(inputs, width, blocks):
    """Convolutions without bias; two parameters per channel of a normalization; a 1×1 shortcut in the first block."""
    total = inputs * 4 * width
    for block in range(blocks):
        channels = inputs if block == 0 else 4 * width
        total += channels * width + 9 * width * width + width * 4 * width + 2 * (channels + width + width)
    return total


def transformer(width, filters, layers):
    attention, norms = 4 * width * width, 2 * 2 * width
    return LM1B * width + layers * (attention + dense(width, filters) + dense(filters, width) + norms)


def gpt(width, layers):
    """Tied embeddings, blocks of four square matrices, a network of four times the width and two norms, a last norm."""
    return BYTES * width + layers * (4 * width**2 + 8 * width**2 + 2 * width) + width


def ddsp(width, layers, harmonics, bands, reverb):
    """Stacks of normalised layers for pitch and loudness and after the GRU, controls, and the samples of the room."""
    stack = (layers - 1) * dense(width, width) + layers * 2 * width
    gru = 3 * (dense(2 * width, width) + dense(width, width))
    return (
        3 * stack + 2 * dense(1, width) + gru + dense(3 * width, width) + dense(width, 1 + harmonics + bands) + reverb
    )


COUNTS = {
    "linear": (MNIST, 10, 7_850),
    "mlp": (MNIST, 10, dense(784, 64) + dense(64, 64) + dense(64, 10)),
    "fc_1024": (MNIST, 10, 814_090),
    "fc_1024_1024_1024": (MNIST, 10, 814_090 + 2 * dense(1024, 1024)),
    "fc_64_64_64": (MNIST, 10, dense(784, 64) + 2 * dense(64, 64) + dense(64, 10)),
    "simple_cnn_base": (MNIST, 10, 3_274_634),
    "simple_cnn_narrow": (MNIST, 10, cnn(16, 32, 512)),
    "simple_cnn_wide": (MNIST, 10, cnn(64, 128, 2048)),
    # 448 + 4,640 + 13,888 + 55,424 + 650
    "resnet_8": (CIFAR, 10, 75_050),
    "resnet_50": (
        IMAGENET,
        1000,
        7 * 7 * 3 * 64
        + bottlenecks(64, 64, 3)
        + bottlenecks(256, 128, 4)
        + bottlenecks(512, 256, 6)
        + bottlenecks(1024, 512, 3)
        + 2 * 2048
        + dense(2048, 1000),
    ),
    "vgg_11": (IMAGENET, 1000, 132_863_336),
    # 32,768,000 embeddings, 1,536 × 8,192 + 8,192 gates, 1,048,576 projection, 16,384,000 outputs
    "lstm": (WORDS, LM1B, 62_791_680),
    "transformer_base": (WORDS, LM1B, 35_286_016),
    "transformer_shallow": (WORDS, LM1B, transformer(512, 2048, 2)),
    "transformer_narrow_and_shallow": (WORDS, LM1B, transformer(256, 1024, 2)),
    "transformer_wide": (WORDS, LM1B, transformer(1024, 4096, 6)),
    "gpt_100k": (WORDS, BYTES, 115_136),
    "gpt_300k": (WORDS, BYTES, gpt(96, 3)),
    "gpt_1m": (WORDS, BYTES, gpt(128, 5)),
    "gpt_3m": (WORDS, BYTES, gpt(192, 7)),
    "gpt_10m": (WORDS, BYTES, gpt(320, 8)),
    "ddsp": (FRAMES, SAMPLES, ddsp(512, 3, 60, 65, 48_000)),
    "ddsp_small": (FRAMES, SAMPLES, ddsp(128, 2, 60, 65, 16_000)),
    "ddsp_tiny": (FRAMES, SAMPLES, ddsp(64, 2, 24, 17, 4_000)),
}


@pytest.mark.parametrize("name", COUNTS)
def test_parameter_counts_at_the_papers_sizes(name):
    shape, num_outputs, expected = COUNTS[name]
    assert count(name, shape, num_outputs) == expected


def test_every_named_model_is_counted():
    assert set(model_names()) - {"quadratic", "fc_WIDTH_WIDTH_…"} <= set(COUNTS)


def test_the_hand_formulas_agree_with_the_published_totals():
    assert cnn(32, 64, 1024) == 3_274_634
    assert transformer(512, 2048, 6) == 35_286_016
    assert gpt(64, 2) == 115_136


def test_options_of_the_gpt_add_what_they_say():
    plain = count("gpt_100k", WORDS, BYTES)
    assert count("gpt_100k", WORDS, BYTES, tied=False) - plain == BYTES * 64
    assert count("gpt_100k", WORDS, BYTES, swiglu=True) - plain == 2 * 64 * 256


def test_tiny_models_have_few_parameters():
    for name, (shape, num_outputs, _) in COUNTS.items():
        side = (32, 32, shape[2]) if len(shape) == 3 else shape
        assert count(name, side, min(num_outputs, 20), tiny=True) < 40_000
