import gzip
import sys

import numpy as np
import polars as pl
import pytest

from batchscale.errors import DataError, SpecError
from batchscale.workloads.datasets.declaration import dataset_info, load_dataset
from batchscale.workloads.datasets.text import files as files_module
from batchscale.workloads.datasets.text.dataset import TokenSplit
from batchscale.workloads.datasets.text.files import hash_files, held_out_draw, iter_sentences, split_held_out
from batchscale.workloads.datasets.text.vocabulary import EOS, PAD, ByteVocabulary, open_vocabulary
from batchscale.workloads.workload import ArraySplit

WORDS = ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "and", "naïve", "猫", "sits…", "😀"]
SMALL = {"vocabulary_size": 300}


def sentences(count, seed=0):
    draw = np.random.RandomState(seed)
    return [" ".join(draw.choice(WORDS, draw.randint(2, 30))) + f" {number}" for number in range(count)]


def write(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def corpus(tmp_path):
    for split, count in (("train", 200), ("val", 20), ("test", 30)):
        write(tmp_path / f"{split}.txt", sentences(count, seed=count))
    return {
        **SMALL,
        "path": str(tmp_path / "train.txt"),
        "val_path": str(tmp_path / "val.txt"),
        "test_path": str(tmp_path / "test.txt"),
    }


def rows(split):
    """The tokens of every row, without padding."""
    batch = split.arrays if isinstance(split, ArraySplit) else split.read(np.arange(split.num_examples), None)
    return [row[:length].tolist() for row, length in zip(batch["labels"], batch["lengths"], strict=True)]


def vocabulary_of(path, size=300):
    return open_vocabulary(hash_files([path]), size, iter_sentences([path]))


def test_evaluation_sentences_come_back_whole_and_unchanged(tmp_path, corpus):
    dataset = load_dataset("text", corpus, None)
    vocabulary = vocabulary_of(tmp_path / "train.txt")
    for split in ("val", "test"):
        tokens = rows(dataset.splits[split])
        assert [vocabulary.decode(row) for row in tokens] == list(iter_sentences([tmp_path / f"{split}.txt"]))
        assert all(row[-1] == EOS and PAD not in row for row in tokens)


def test_training_sentences_are_clipped_to_their_first_tokens(tmp_path, corpus):
    whole = rows(load_dataset("text", {**corpus, "train_length": 500}, None).splits["train"])
    clipped = load_dataset("text", {**corpus, "train_length": 10}, None)
    assert rows(clipped.splits["train"]) == [row[:10] for row in whole]
    assert clipped.input_shape == (10,) == dataset_info("text", {**corpus, "train_length": 10}).input_shape
    assert clipped.splits["train"].arrays["labels"].shape == (200, 10)
    assert max(map(len, whole)) > 64 > min(map(len, whole))


def test_prepare_shifts_right_and_masks_padding(corpus):
    dataset = load_dataset("text", corpus, None)
    stored = {key: array[:7] for key, array in dataset.splits["val"].arrays.items()}
    batch = {key: np.asarray(array) for key, array in dataset.prepare(stored).items()}
    for number, length in enumerate(stored["lengths"]):
        assert batch["mask"][number].tolist() == [1.0] * length + [0.0] * (stored["labels"].shape[1] - length)
        assert batch["inputs"][number, 0] == PAD
        assert np.array_equal(batch["inputs"][number, 1:], batch["labels"][number, :-1])
    assert {key: str(array.dtype) for key, array in batch.items()} == {
        "inputs": "int32",
        "labels": "int32",
        "mask": "float32",
        "bytes": "float32",
    }


def test_a_split_on_disk_reads_what_a_split_in_memory_holds(corpus):
    memory, disk = (load_dataset("text", {**corpus, "memory_limit_mb": limit}, None) for limit in (100, 0))
    for name in ("train", "val", "test"):
        assert isinstance(memory.splits[name], ArraySplit)
        assert isinstance(disk.splits[name], TokenSplit)
        order = np.random.RandomState(1).permutation(disk.splits[name].num_examples)
        read = disk.splits[name].read(order, np.zeros(len(order), np.int64))
        for key, array in memory.splits[name].arrays.items():
            assert np.array_equal(read[key], array[order])


@pytest.mark.parametrize("length", [1, 7, 64])
def test_packing_puts_all_sentences_end_to_end(corpus, length):
    sentence_wise = load_dataset("text", {**corpus, "train_length": 500}, None)
    packed = load_dataset("text", {**corpus, "sequence_length": length}, None)
    for name in ("train", "val", "test"):
        flat = [token for row in rows(sentence_wise.splits[name]) for token in row]
        blocks = rows(packed.splits[name])
        assert [token for block in blocks for token in block] == flat
        assert all(len(block) == length for block in blocks[:-1])
    assert packed.num_train_examples == dataset_info("text", {**corpus, "sequence_length": length}).num_train_examples


def test_packing_works_on_a_text_in_one_piece(tmp_path):
    options = {**SMALL, "path": str(write(tmp_path / "all.txt", sentences(300))), "train_length": 500}
    whole = load_dataset("text", options, None)
    packed = load_dataset("text", {**options, "sequence_length": 16}, None)
    for name in ("train", "val", "test"):
        flat = [token for row in rows(whole.splits[name]) for token in row]
        assert [token for block in rows(packed.splits[name]) for token in block] == flat


def test_a_text_in_one_piece_is_split_at_random_without_loss(tmp_path):
    lines = sentences(2000)
    path = write(tmp_path / "all.txt", lines)
    dataset = load_dataset("text", {**SMALL, "path": str(path), "train_length": 500}, None)
    counts = {name: split.num_examples for name, split in dataset.splits.items()}
    assert sum(counts.values()) == 2000
    assert 140 < counts["val"] + counts["test"] < 260  # 200 ± 4.5 standard deviations of 13.4
    assert abs(counts["val"] - counts["test"]) <= 1
    chosen, held_out = split_held_out(2000, 0.1)
    key = f"{hash_files([path])}-0.1"
    vocabulary = open_vocabulary(key, 300, ())
    assert [vocabulary.decode(row) for row in rows(dataset.splits["train"])] == [lines[i] for i in chosen]
    assert [vocabulary.decode(row) for row in rows(dataset.splits["val"])] == [lines[i] for i in held_out][
        : counts["val"]
    ]


def test_held_out_sentences_do_not_shape_the_vocabulary(tmp_path):
    """Words that only held-out sentences have stay split into bytes."""
    _, held_out = split_held_out(1000, 0.1)
    lines = ["zyxzyx zyxzyx" if number in set(held_out.tolist()) else "common words here" for number in range(1000)]
    path = write(tmp_path / "all.txt", lines)
    dataset = load_dataset("text", {**SMALL, "path": str(path)}, None)
    assert len(rows(dataset.splits["val"])[0]) == len("zyxzyx zyxzyx") + 1


def test_the_draw_of_a_sentence_is_uniform_and_fixed():
    draw = held_out_draw(np.arange(200_000))
    counts = np.histogram(draw, bins=20, range=(0, 1))[0]
    assert np.sum((counts - 10_000) ** 2 / 10_000) < 43.8  # chi-squared, 19 degrees of freedom, p = 0.001
    # splitmix64 from state 0: the first output is 0xE220A8397B1DCDAF, as its authors publish it
    assert draw[0] == (0xE220A8397B1DCDAF >> 11) / 2**53


def test_common_crawl_holds_out_the_papers_share_and_clips_evaluation(tmp_path):
    folder = tmp_path / "common_crawl"
    write(folder / "a.txt", ["word " * 600, *(f"sentence {number}" for number in range(40_000))])
    with gzip.open(folder / "b.txt.gz", "wt", encoding="utf-8") as file:
        file.write("one more sentence\n\n  \n")
    dataset = load_dataset("common_crawl", {**SMALL, "eval_length": 12}, tmp_path)
    train, held_out = split_held_out(40_002, 0.0002)
    assert dataset.num_train_examples == len(train)
    assert dataset.splits["val"].num_examples + dataset.splits["test"].num_examples == len(held_out)
    assert dataset.splits["val"].arrays["labels"].shape[1] <= 12
    assert dataset.splits["train"].arrays["labels"].shape[1] == 64
    assert dataset_info("common_crawl", {}).num_outputs == 24_006


def test_a_text_too_small_for_its_holdout_says_so(tmp_path):
    write(tmp_path / "common_crawl" / "a.txt", sentences(10))
    with pytest.raises(DataError, match="set the option holdout"):
        load_dataset("common_crawl", SMALL, tmp_path)


def test_a_folder_of_any_text_is_not_taken_for_common_crawl(tmp_path):
    write(tmp_path / "notes" / "a.txt", sentences(10))
    with pytest.raises(DataError, match="in none of the places"):
        load_dataset("common_crawl", {}, tmp_path)


def test_lm1b_takes_the_first_two_held_out_files(tmp_path):
    base = tmp_path / "lm1b" / "1-billion-word-language-modeling-benchmark-r13output"
    train, held_out = base / "training-monolingual.tokenized.shuffled", base / "heldout-monolingual.tokenized.shuffled"
    for number in (1, 2):
        write(train / f"news.en-0000{number}-of-00100", sentences(50, seed=number))
    for number, count in ((0, 5), (1, 6), (2, 7)):
        write(held_out / f"news.en.heldout-0000{number}-of-00050", [*sentences(count, seed=9), "x " * 200])
    dataset = load_dataset("lm1b", SMALL, tmp_path)
    assert {name: split.num_examples for name, split in dataset.splits.items()} == {"train": 100, "val": 6, "test": 7}
    assert max(map(len, rows(dataset.splits["val"]))) > 200  # not clipped in evaluation
    assert dataset_info("lm1b", {}).num_train_examples == 30_301_028
    assert dataset_info("lm1b", {**SMALL, "path": str(tmp_path / "lm1b")}).num_train_examples == 100


def test_the_vocabulary_and_the_tokens_are_made_once(tmp_path, corpus, monkeypatch):
    load_dataset("text", corpus, None)
    cache = tmp_path / "cache" / "batchscale"
    before = {path: path.stat().st_mtime_ns for path in cache.rglob("*")}
    monkeypatch.setattr("batchscale.workloads.datasets.text.vocabulary._train", None)
    monkeypatch.setattr("batchscale.workloads.datasets.text.tokens._write", None)
    load_dataset("text", corpus, None)
    assert {path: path.stat().st_mtime_ns for path in cache.rglob("*")} == before
    assert not [path for path in before if path.name.startswith(".new-")]


def test_the_same_text_gives_the_same_vocabulary_on_another_machine(tmp_path, corpus, monkeypatch):
    first = vocabulary_of(tmp_path / "train.txt").tokenizer.to_str()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "elsewhere"))
    moved = write(tmp_path / "moved.txt", list(iter_sentences([tmp_path / "train.txt"])))
    assert vocabulary_of(moved).tokenizer.to_str() == first


def test_a_store_that_fails_half_way_leaves_nothing(tmp_path, corpus, monkeypatch):
    def break_off(*_):
        yield [3, 4]
        raise KeyboardInterrupt

    monkeypatch.setattr("batchscale.workloads.datasets.text.vocabulary.SubwordVocabulary.encode", break_off)
    with pytest.raises(KeyboardInterrupt):
        load_dataset("text", corpus, None)
    assert not list((tmp_path / "cache" / "batchscale" / "tokens").iterdir())


def test_a_damaged_cache_is_named(tmp_path, corpus):
    load_dataset("text", corpus, None)
    store = next((tmp_path / "cache" / "batchscale" / "tokens").iterdir()) / "tokens.bin"
    store.write_bytes(store.read_bytes()[:-2])
    with pytest.raises(DataError, match=r"is damaged\. Remove it"):
        load_dataset("text", corpus, None)


def test_text_that_is_not_utf8_is_named_with_its_line(tmp_path):
    (tmp_path / "bad.txt").write_bytes(b"fine\nna\xefve\n")
    with pytest.raises(DataError, match=r"bad\.txt, line 2: text must be UTF-8"):
        load_dataset("text", {**SMALL, "path": str(tmp_path / "bad.txt")}, None)


def test_windows_files_give_the_same_sentences(tmp_path):
    (tmp_path / "windows.txt").write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n\r\n")
    assert list(iter_sentences([tmp_path / "windows.txt"])) == ["one", "two"]


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({}, SpecError, "'path' of data set 'text'"),
        ({"path": "nowhere"}, DataError, "must name a text file"),
        ({"path": "x", "vocabulary_size": 100}, SpecError, "vocabulary_size"),
        ({"path": "x", "vocabularysize": 100}, SpecError, "did you mean 'vocabulary_size'"),
    ],
)
def test_wrong_options_are_refused(options, kind, message):
    with pytest.raises(kind, match=message):
        load_dataset("text", options, None)


def test_one_of_validation_and_test_alone_is_refused(corpus):
    del corpus["test_path"]
    with pytest.raises(DataError, match="give both or none"):
        load_dataset("text", corpus, None)


def test_without_the_library_the_message_says_what_to_install(corpus, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(DataError, match=r"pip install 'batchscale\[text\]'"):
        load_dataset("text", corpus, None)


BYTES = {"tokenizer": "bytes", "sequence_length": 16}


def test_bytes_need_no_library_and_come_back_unchanged(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    lines = sentences(60)
    path = write(tmp_path / "x.txt", lines)
    dataset = load_dataset("text", {**BYTES, "path": str(path), "holdout": 0.2}, None)
    assert dataset.num_outputs == 258
    assert dataset.tokens_per_example == 16
    train, held_out = split_held_out(len(lines), 0.2)
    expected = b"".join(lines[number].encode() + b"\n" for number in train)
    stream = [token for row in rows(dataset.splits["train"]) for token in row]
    assert bytes(10 if token == EOS else token - 2 for token in stream) == expected
    assert sum(len(row) for split in ("val", "test") for row in rows(dataset.splits[split])) == sum(
        len(lines[number].encode()) + 1 for number in held_out
    )
    vocabulary = ByteVocabulary()
    assert vocabulary.decode(next(vocabulary.encode(["naïve 😀"]))) == "naïve 😀"


@pytest.mark.parametrize("tokenizer", ["bytes", "subwords"])
def test_the_bytes_of_all_tokens_are_those_of_the_text(tmp_path, tokenizer):
    lines = sentences(80)
    path = write(tmp_path / "x.txt", lines)
    sizes = {} if tokenizer == "bytes" else SMALL
    dataset = load_dataset("text", {"path": str(path), "tokenizer": tokenizer, "sequence_length": 7, **sizes}, None)
    total = 0.0
    for split in dataset.splits.values():
        batch = dataset.prepare(split.arrays)
        total += float((batch["bytes"] * batch["mask"]).sum())
    assert total == sum(len(line.encode()) + 1 for line in lines)  # the end of a sentence stands for its line break


def test_parquet_files_give_the_texts_of_their_column(tmp_path):
    texts = ["one\ntwo ", None, "", "  ", *sentences(9000)]
    table = pl.DataFrame({"id": range(len(texts)), "body": texts})
    (tmp_path / "data").mkdir()
    table.head(5000).write_parquet(tmp_path / "data/a.parquet", row_group_size=700)
    table.tail(-5000).write_parquet(tmp_path / "data/b.parquet")
    files = [tmp_path / "data/a.parquet", tmp_path / "data/b.parquet"]
    assert list(iter_sentences(files, "body")) == ["one\ntwo", *texts[4:]]
    options = {**BYTES, "path": str(tmp_path / "data"), "text_column": "body"}
    dataset = load_dataset("text", options, None)
    assert dataset.num_train_examples == dataset_info("text", options).num_train_examples > 1000
    for column, message in (("text", "set the option text_column to one of its columns: id, body"), ("id", "Int64")):
        with pytest.raises(DataError, match=message):
            load_dataset("text", {**options, "text_column": column}, None)
    files[1].write_bytes(files[1].read_bytes()[:-20])
    with pytest.raises(DataError, match=r"b\.parquet cannot be read as Parquet"):
        load_dataset("text", options, None)


def test_another_column_of_the_same_files_is_another_text(tmp_path):
    frame = pl.DataFrame({"text": ["a first text"] * 50, "other": ["one of quite another length"] * 50})
    frame.write_parquet(tmp_path / "x.parquet")
    options = {**BYTES, "path": str(tmp_path)}
    first, second = (dataset_info("text", {**options, "text_column": name}) for name in ("text", "other"))
    assert first.num_train_examples < second.num_train_examples


def test_a_line_that_no_memory_should_hold_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(files_module, "_LONGEST_LINE", 1000)
    path = tmp_path / "x.txt"
    path.write_bytes(b"short\n" + b"a" * 1000 + b"\n")  # the line break is the byte too many
    with pytest.raises(DataError, match=r"x\.txt, line 2: a line must have at most .* MiB"):
        list(iter_sentences([path]))


def test_bytes_have_a_vocabulary_of_their_own(tmp_path):
    path = write(tmp_path / "x.txt", sentences(5))
    with pytest.raises(SpecError, match="always has 258 tokens"):
        load_dataset("text", {**BYTES, "path": str(path), "vocabulary_size": 300}, None)
    with pytest.raises(SpecError, match="'tokenizer' of data set 'text'"):
        load_dataset("text", {"path": str(path), "tokenizer": "words"}, None)
