"""The models of the engine benchmark, described once for both contestants: sizes only, no library."""

from dataclasses import dataclass

BATCH_SIZES = (1, 8, 64, 512)


@dataclass(frozen=True)
class Case:
    """A model by kind and sizes, with the shape and number of its random training examples.

    Images are bytes, scaled to [0, 1] in the step; words are int32. Dropout is as in the workload's model.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    num_outputs: int
    widths: tuple[int, ...]
    dropout: float
    num_examples: int = 10_000
    heads: int = 4

    @property
    def words(self) -> bool:
        """True for language models."""
        return self.kind in ("transformer", "gpt")


CASES = {
    case.name: case
    for case in (
        Case("fc_1024", "fc", (28, 28, 1), 10, (1024,), 0.4),
        Case("fc_128_128_128", "fc", (28, 28, 1), 10, (128, 128, 128), 0.4),
        Case("simple_cnn_base", "cnn", (28, 28, 1), 10, (32, 64, 1024), 0.4),
        # two layers of width 64 with a network of 256, sentences of 32 words of 256
        Case("small_transformer", "transformer", (32,), 256, (64, 256, 2), 0.1),
        # the built-in models of these names on bytes: width, network and layers; sequences of 64
        Case("gpt_100k", "gpt", (64,), 258, (64, 256, 2), 0.0, heads=2),
        Case("gpt_1m", "gpt", (64,), 258, (128, 512, 5), 0.0),
        Case("digits_fc", "fc", (8, 8, 1), 10, (64,), 0.4, num_examples=1437),
    )
}
