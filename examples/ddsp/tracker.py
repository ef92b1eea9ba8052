"""How accurate the pitch tracker is on tones whose pitch is known: the table of docs/instrument.md.

python examples/ddsp/tracker.py
"""

import numpy as np

from batchscale.instruments.sound.features import VOICED, extract_features
from batchscale.instruments.sound.recordings import SAMPLE_RATE

NOTES = range(33, 97, 3)  # A1 to C7
SECONDS = 1.0


def tone(f0_hz: np.ndarray, harmonics: int, noise_db: float | None) -> np.ndarray:
    """A tone along these frequencies; harmonics fall off as 1/n; white noise so far below it."""
    phase = 2 * np.pi * np.cumsum(f0_hz) / SAMPLE_RATE
    parts = [np.where(f0_hz * n < SAMPLE_RATE / 2, np.sin(n * phase) / n, 0.0) for n in range(1, harmonics + 1)]
    sound = sum(parts, np.zeros_like(phase))
    sound *= 0.1 / np.sqrt(np.mean(np.square(sound)))
    if noise_db is not None:
        noise = np.random.default_rng(0).normal(size=len(sound))
        sound = sound + noise * 0.1 * 10 ** (noise_db / 20)
    return sound.astype(np.float32)


def vibrato(f0_hz: float, cents: float) -> np.ndarray:
    """A second of a note that moves up and down so many cents, five times."""
    times = np.arange(round(SECONDS * SAMPLE_RATE)) / SAMPLE_RATE
    return f0_hz * 2 ** (cents / 1200 * np.sin(2 * np.pi * 5 * times))


def main() -> None:
    """Print a row of the table for each kind of tone."""
    kinds = {
        "sine": (0.0, 1, None),
        "ten harmonics": (0.0, 10, None),
        "ten harmonics, noise 20 dB below": (0.0, 10, -20.0),
        "ten harmonics, vibrato of 30 cents": (30.0, 10, None),
    }
    print("| tones, 55 to 2093 Hz | found voiced | of these: median error | within 20 cents | an octave off |")
    print("|---|---:|---:|---:|---:|")
    for name, (cents, harmonics, noise_db) in kinds.items():
        errors, voiced = [], []
        for note in NOTES:
            f0_hz = vibrato(440 * 2 ** ((note - 69) / 12), cents)
            found = extract_features([tone(f0_hz, harmonics, noise_db)])
            inside = slice(25, -25)
            wanted = f0_hz[:: SAMPLE_RATE // 250]
            off = 1200 * np.abs(np.log2(found.f0_hz / wanted))[inside]
            heard = found.confidence[inside] >= VOICED
            errors.append(off[heard])
            voiced.append(heard)
        off, share = np.concatenate(errors), np.mean(np.concatenate(voiced))
        near, octave = np.mean(off <= 20), np.mean(np.abs(off - 1200) < 100)
        print(f"| {name} | {share:.1%} | {np.median(off):.1f} cents | {near:.1%} | {octave:.1%} |")


if __name__ == "__main__":
    main()
