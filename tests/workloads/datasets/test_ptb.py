import numpy as np
import pytest

from batchscale.errors import DataError
from batchscale.workloads.datasets.builtin.ptb import read_ptb
from batchscale.workloads.datasets.declaration import dataset_info, load_dataset
from batchscale.workloads.datasets.text.options import SequenceOptions

TEXTS = {"train": " a b a <unk> \n c a \n\n", "valid": " b zebra \n", "test": " a \n c c c \n"}


@pytest.fixture
def folder(tmp_path):
    for name, text in TEXTS.items():
        (tmp_path / f"ptb.{name}.txt").write_text(text)
    return tmp_path


def test_words_are_numbered_by_frequency_and_unknown_ones_share_a_number(folder):
    text = read_ptb(folder, SequenceOptions(path=str(folder)))
    assert text.words == ("a", "<eos>", "<unk>", "b", "c")  # three, two, and one each by name
    tokens, lengths = text.splits["train"].read(np.arange(2))
    assert [row[:n].tolist() for row, n in zip(tokens, lengths, strict=True)] == [[0, 3, 0, 2, 1], [4, 0, 1]]
    tokens, _ = text.splits["val"].read(np.arange(1))
    assert tokens.tolist() == [[3, 2, 1]]


def test_the_end_of_a_sentence_stands_before_the_first_word(folder):
    dataset = load_dataset("ptb", {"path": str(folder), "train_length": 4}, None)
    batch = dataset.prepare(dataset.splits["train"].arrays)
    assert batch["inputs"].tolist() == [[1, 0, 3, 0], [1, 4, 0, 1]]
    assert batch["labels"].tolist() == [[0, 3, 0, 2], [4, 0, 1, 0]]
    assert batch["mask"].tolist() == [[1, 1, 1, 1], [1, 1, 1, 0]]
    assert dataset.num_outputs == 5 == dataset_info("ptb", {"path": str(folder)}).num_outputs


def test_packing_makes_one_text_of_all_sentences(folder):
    dataset = load_dataset("ptb", {"path": str(folder), "sequence_length": 3}, None)
    assert dataset.splits["train"].arrays["labels"].tolist() == [[0, 3, 0], [2, 1, 4], [0, 1, 0]]
    assert dataset.splits["train"].arrays["lengths"].tolist() == [3, 3, 2]


def test_a_word_without_a_number_is_named(folder):
    (folder / "ptb.train.txt").write_text("a b\n")
    with pytest.raises(DataError, match=r"ptb\.valid\.txt: the word 'zebra' is not in the training file"):
        load_dataset("ptb", {"path": str(folder)}, None)


def test_other_words_are_not_taken_for_the_treebank_unless_named(folder):
    with pytest.raises(DataError, match=r"42,068 training sentences of 10,000 words.*holds 2 of 5.*option path"):
        load_dataset("ptb", {}, folder)


def test_the_real_treebank_has_its_published_numbers_of_tokens(real_data):
    folder = real_data("ptb")
    packed = load_dataset("ptb", {"sequence_length": 35}, folder)
    counts = {name: int(split.arrays["lengths"].sum()) for name, split in packed.splits.items()}
    assert counts == {"train": 929_589, "val": 73_760, "test": 82_430}
    assert packed.num_outputs == 10_000
    assert packed.num_train_examples == dataset_info("ptb", {"sequence_length": 35}).num_train_examples
    sentences = load_dataset("ptb", {}, folder)
    assert {name: split.num_examples for name, split in sentences.splits.items()} == {
        "train": 42_068,
        "val": 3_370,
        "test": 3_761,
    }
