"""The first half of an import: read a source into parts, in bounded memory."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from batchscale.errors import RecordsError
from batchscale.records.archive import DamagedArchiveError, RecordFile
from batchscale.records.table.parts import Part, PartContent
from batchscale.records.table.source import Source
from batchscale.records.tree.layout import MEASUREMENTS_FILE, TRIAL_FILE

ADVICE = "Nothing was imported. To leave out what is not sound and import the rest, run again with --keep-going."
MAX_PROBLEMS = 10_000
_PARSED_AT_ONCE = 2  # pieces: memory grows with each


@dataclass
class _SeenFiles:
    """The files of a study that were read, to detect duplicates."""

    study: bool = False
    trials: set[int] = field(default_factory=set)
    measurements: set[int] = field(default_factory=set)

    def add(self, trial_id: int | None, name: str) -> bool:
        """Add a file; True if it is new."""
        if trial_id is None:
            is_new, self.study = not self.study, True
            return is_new
        ids = self.measurements if name == MEASUREMENTS_FILE else self.trials
        is_new = trial_id not in ids
        ids.add(trial_id)
        return is_new


class SourceReader:
    """Reads a source into ``parts``. The measurements of all but the last are stored below ``staging``.

    ``damage`` is the reason why an archive could not be read to its end. ``on_progress`` receives the share read and
    the number of trials.
    """

    def __init__(
        self,
        source: Source,
        staging: Path,
        keep_going: bool,
        part_bytes: int,
        on_progress: Callable[[float, int], None],
    ) -> None:
        self.source = source
        self.parts: list[Part] = []
        self.damage: str | None = None
        self._staging, self._keep_going, self._part_bytes = staging, keep_going, part_bytes
        self._on_progress = on_progress
        self._num_problems = self._num_trials = 0
        self._seen: dict[tuple[str, int], _SeenFiles] = {}
        self._content = PartContent()
        self._running: tuple[Future[Part], int] | None = None

    def read(self) -> None:
        """Read the whole source.

        Raises:
            RecordsError: something is not sound and ``keep_going`` is not set, or a limit is passed.
        """
        with ThreadPoolExecutor(_PARSED_AT_ONCE, "batchscale-import") as pool:
            try:
                for entry in self.source.entries():
                    if isinstance(entry, RecordFile):
                        self._add(entry)
                        self._content.parse_ahead(pool)
                    elif entry.problem is not None:
                        self._report(entry.problem)
                    if self._content.bytes >= self._part_bytes:
                        self._store(pool)
            except DamagedArchiveError as error:
                self._stop_at_damage(error)
            content = self._take(pool)
            self._wait()
            reported = len(content.problems)
            self._append(Part(content), reported)  # it stays in memory: the table is built at once

    def _add(self, file: RecordFile) -> None:
        key = (file.folder, file.batch_size)
        seen = self._seen.get(key)
        if seen is None:
            seen = self._seen[key] = _SeenFiles()
        if not seen.add(file.trial_id, file.name):
            self._report(f"{file.path}: a file is in an archive once. Found it again; the first one counts.")
            return
        try:
            self._content.add(file)
        except RecordsError as error:
            self._report(str(error))
            if file.trial_id is not None:
                self._content.dropped.append((file.folder, file.batch_size, file.trial_id))
        self._num_trials += file.name == TRIAL_FILE

    def _report(self, problem: str) -> None:
        self._count_problems([problem])
        self._content.problems.append(problem)

    def _count_problems(self, problems: list[str]) -> None:
        if problems and not self._keep_going:
            raise RecordsError(f"{problems[0]} {ADVICE}")
        self._num_problems += len(problems)
        if self._num_problems > MAX_PROBLEMS:
            raise RecordsError(f"A source has at most {MAX_PROBLEMS:,} problems. Found more: is it records at all?")

    def _stop_at_damage(self, error: DamagedArchiveError) -> None:
        studies = len(self._seen)
        text = f"{error} Before it stand {studies:,} studies with {self._num_trials:,} trials."
        if not studies:
            raise RecordsError(text)
        if not self._keep_going:
            raise RecordsError(f"{text} Nothing was imported. To import these alone, run again with --keep-going.")
        self.damage = text

    def _store(self, pool: ThreadPoolExecutor) -> None:
        """Let the pool make a part of the content and store its measurements; one part at a time."""
        self._wait()
        content, path = self._take(pool), self._staging / f"part-{len(self.parts):05}"
        reported = len(content.problems)

        def make() -> Part:
            part = Part(content)
            part.store(path)
            return part

        self._running = (pool.submit(make), reported)
        self._on_progress(self.source.fraction(), self._num_trials)

    def _take(self, pool: ThreadPoolExecutor) -> PartContent:
        """Return the content, all of it being parsed, and start a new one."""
        content, self._content = self._content, PartContent()
        content.parse_waiting(pool)
        return content

    def _wait(self) -> None:
        if self._running is not None:
            (future, reported), self._running = self._running, None
            self._append(future.result(), reported)

    def _append(self, part: Part, reported: int) -> None:
        """Add a part; ``reported`` of its problems were counted while it was read."""
        self._count_problems(part.problems[reported:])
        self.parts.append(part)
        self._on_progress(self.source.fraction(), self._num_trials)
