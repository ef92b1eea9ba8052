"""The first half of an import: read a source into parts, with a checkpoint behind each, and resume from the last."""

import json
import os
import shutil
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from batchscale.errors import RecordsError
from batchscale.records.archive.members import RecordFile
from batchscale.records.archive.stream import DamagedArchiveError
from batchscale.records.durable import sync_path
from batchscale.records.table.files import TABLE_VERSION
from batchscale.records.table.gathered import PartContent
from batchscale.records.table.parts import PART_VERSION, HeldPart, Part, StoredPart, store_part
from batchscale.records.table.source_interface import Source
from batchscale.records.tree.layout import MEASUREMENTS_FILE, STUDY_FILE, TRIAL_FILE

ADVICE = "Nothing was imported. To leave out what is not sound and import the rest, run again with --keep-going."
MAX_PROBLEMS = 10_000
_STATE = "state.json"
_PARSED_AT_ONCE = 2  # pieces: memory grows with each


@dataclass
class _Seen:
    """The files of a study that have come by, to find those that come twice."""

    study: bool = False
    trials: set[int] = field(default_factory=set)
    measurements: set[int] = field(default_factory=set)

    def is_new(self, trial_id: int | None, name: str) -> bool:
        """Whether a file is here for the first time; it is noted."""
        if trial_id is None:
            new, self.study = not self.study, True
            return new
        ids = self.measurements if name == MEASUREMENTS_FILE else self.trials
        new = trial_id not in ids
        ids.add(trial_id)
        return new


@dataclass
class ReadState:
    """How far the source was read; ``damage`` says why no further."""

    position: int = 0
    damage: str | None = None


class SourceReader:
    """Reads a source into parts, all but the last of them stored below ``staging``.

    ``on_progress`` hears the share read and the number of trials.
    """

    def __init__(
        self,
        source: Source,
        staging: Path,
        keep_going: bool,
        part_bytes: int,
        on_progress: Callable[[float, int], None],
    ) -> None:
        self.source, self.staging = source, staging
        self.keep_going, self.part_bytes, self.on_progress = keep_going, part_bytes, on_progress
        self.parts: list[Part] = []
        self.state = ReadState()
        self.num_problems = self.num_trials = 0
        self._seen: dict[tuple[str, int], _Seen] = {}
        self._content = PartContent()
        self._running: tuple[Future[StoredPart], int, int] | None = None
        self._resume()

    def read(self) -> None:
        """All that is left of the source.

        Raises:
            RecordsError: something is not sound and ``keep_going`` is not set, or a limit is passed.
        """
        with ThreadPoolExecutor(_PARSED_AT_ONCE, "batchscale-import") as pool:
            try:
                self._read_entries(pool)
            except DamagedArchiveError as error:
                self._stop_at_damage(error, pool)
            self._hold(pool)

    def _read_entries(self, pool: ThreadPoolExecutor) -> None:
        for entry in self.source.entries(self.state.position):
            if isinstance(entry.found, RecordFile):
                self._add(entry.found)
                self._content.parse_ahead(pool)
            elif entry.found.problem is not None:
                self._report(entry.found.problem)
            self.state.position = entry.next_position
            if self._content.bytes >= self.part_bytes:
                self._flush(pool, entry.next_position)

    def _add(self, file: RecordFile) -> None:
        key = (file.folder, file.batch_size)
        seen = self._seen.get(key)
        if seen is None:
            seen = self._seen[key] = _Seen()
        if not seen.is_new(file.trial_id, file.name):
            self._report(f"{file.path}: a file is in an archive once. Found it again; the first one counts.")
            return
        try:
            self._content.add(file)
        except RecordsError as error:
            self._report(str(error))
            if file.trial_id is not None:
                self._content.dropped.append((file.folder, file.batch_size, file.trial_id))
        self.num_trials += file.name == TRIAL_FILE

    def _report(self, problem: str) -> None:
        self._count_problems([problem])
        self._content.problems.append(problem)

    def _count_problems(self, problems: list[str]) -> None:
        if problems and not self.keep_going:
            raise RecordsError(f"{problems[0]} {ADVICE}")
        self.num_problems += len(problems)
        if self.num_problems > MAX_PROBLEMS:
            raise RecordsError(f"A source has at most {MAX_PROBLEMS:,} problems. Found more: is it records at all?")

    def _stop_at_damage(self, error: DamagedArchiveError, pool: ThreadPoolExecutor) -> None:
        studies = len(self._seen)
        text = f"{error} Before it stand {studies:,} studies with {self.num_trials:,} trials."
        if not studies:
            raise RecordsError(text)
        if not self.keep_going:
            self._flush(pool, self.state.position)
            self._wait()
            raise RecordsError(f"{text} They are kept; to import them alone, run again with --keep-going.")
        self.state.damage = text

    def _flush(self, pool: ThreadPoolExecutor, position: int) -> None:
        """Hand what was gathered to the writing thread; at most one part is being written at a time."""
        self._wait()
        content, path = self._take(pool), self._part_path(len(self.parts))
        known = len(content.problems)
        future = pool.submit(lambda: store_part(HeldPart(content), path))
        self._running = (future, position, known)
        self.on_progress(self.source.fraction(), self.num_trials)

    def _hold(self, pool: ThreadPoolExecutor) -> None:
        """What was gathered last stays in memory: the table is built at once, and reading it again costs little."""
        content = self._take(pool)
        self._wait()
        known = len(content.problems)
        part = HeldPart(content)
        self._count_problems(part.problems[known:])
        self.parts.append(part)
        self.on_progress(self.source.fraction(), self.num_trials)

    def _take(self, pool: ThreadPoolExecutor) -> PartContent:
        """What was gathered, all of it being parsed."""
        content, self._content = self._content, PartContent()
        content.parse_waiting(pool)
        return content

    def _wait(self) -> None:
        if self._running is None:
            return
        (future, position, known), self._running = self._running, None
        part = future.result()
        self._count_problems(part.problems[known:])
        self.parts.append(part)
        self._checkpoint(position)

    def _part_path(self, number: int) -> Path:
        return self.staging / f"part-{number:05}"

    def _checkpoint(self, position: int) -> None:
        """Remember the stored parts and the position behind them; the rename is the commit point."""
        state = {
            "format_version": TABLE_VERSION,
            "part_version": PART_VERSION,
            "source": self.source.fingerprint(position),
            "parts": len(self.parts),
            "position": position,
            "keep_going": self.keep_going,
        }
        new = self.staging / f"{_STATE}.new"
        with new.open("w") as file:
            json.dump(state, file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.staging / _STATE)
        sync_path(self.staging)

    def _resume(self) -> None:
        """Take up what an interrupted import of the same source left, or start anew."""
        try:
            state = json.loads((self.staging / _STATE).read_bytes())
            fits = state["format_version"] == TABLE_VERSION and state["part_version"] == PART_VERSION
            fits = fits and state["keep_going"] <= self.keep_going
            fits = fits and state["source"] == self.source.fingerprint(state["position"])
        except (OSError, ValueError, KeyError, TypeError):
            fits = False
        if not fits:
            _empty(self.staging)
            return
        self.parts = [StoredPart(self._part_path(number)) for number in range(state["parts"])]
        self.state = ReadState(state["position"])
        for part in self.parts:
            self._note(part)

    def _note(self, part: Part) -> None:
        self._count_problems(part.problems)
        for folder, size, _ in part.studies:
            self._seen.setdefault((folder, size), _Seen()).is_new(None, STUDY_FILE)
        for frame, name in ((part.trials, TRIAL_FILE), (part.files, MEASUREMENTS_FILE)):
            for folder, size, trial in frame.select("folder", "batch_size", "trial_id").rows():
                self._seen.setdefault((folder, size), _Seen()).is_new(trial, name)
        for folder, size, trial in part.dropped:
            seen = self._seen.setdefault((folder, size), _Seen())
            seen.is_new(trial, TRIAL_FILE)
        self.num_trials += part.trials.height


def _empty(staging: Path) -> None:
    for entry in staging.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        elif entry.name != "lock":
            entry.unlink()
