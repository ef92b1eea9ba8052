"""How good an instrument is, in numbers and pictures: spectral distance, pitch, spectrograms.

python examples/ddsp/measure.py build/ddsp/violin-model build/ddsp/prepared build/ddsp/flute/line.wav \
        --picture docs/pictures/instrument.png
"""

import argparse
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from PIL import Image, ImageDraw

from batchscale.instruments.playing.instrument import Instrument, read_instrument
from batchscale.instruments.playing.transfer import TransferOptions, read_whole, resynthesise, transfer
from batchscale.instruments.sound.features import HOP, VOICED, extract_features
from batchscale.instruments.sound.recordings import SAMPLE_RATE
from batchscale.instruments.synthesis.spectral_loss import spectral_loss
from batchscale.instruments.synthesis.synthesizers import oscillate
from batchscale.workloads.models.declaration import Shape, find_model

compare = jax.jit(spectral_loss)
WIDTH, HEIGHT, MARGIN = 900, 190, 44
SIZE, TOP_HZ, RANGE_DB = 1024, 8000, 80
WINDOW_FRAMES = 16  # to each side of a frame: the tracker's spectra are of 2,048 samples
SPAN = 2 * WINDOW_FRAMES + 1


def untrained(instrument: Instrument) -> Instrument:
    """The same model before its first step."""
    model = find_model(instrument.model, instrument.model_options).for_data(Shape((10, 2 + instrument.mfccs), 10 * HOP))
    params = jax.tree.map(np.asarray, jax.jit(model.init)(jax.random.key(0))[0])
    return Instrument(
        instrument.model, instrument.model_options, instrument.mfccs, instrument.statistics, params, {"steps": 0}
    )


def distance(played: np.ndarray, recorded: np.ndarray) -> float:
    """The multi-scale spectral loss of two sounds."""
    return float(compare(jnp.asarray(played)[None], jnp.asarray(recorded)[None])[0])


def pitch_error(given: np.ndarray, played: np.ndarray, octaves: int = 0) -> dict[str, float]:
    """How far the pitch of what is played lies from that of what was given, in cents, where both have one.

    A tracker hears a window at once. Where the pitch moves within it (from one note to the next) there is no one pitch
    to hear, in the recording or in what is played: frames whose window has one pitch are counted apart as steady. Of
    the same line played by plain harmonics the tracker hears as much as it can hear of any player.
    """
    wanted, heard = extract_features([given]), extract_features([played])
    f0_hz = wanted.f0_hz * 2.0**octaves
    plain = extract_features([plain_harmonics(f0_hz, wanted.loudness_db)])
    voiced = (wanted.confidence >= VOICED) & (wanted.loudness_db >= -60)
    steady = voiced & is_steady(f0_hz, voiced)
    both = voiced & (heard.confidence >= VOICED)
    cents = cents_apart(heard.f0_hz, f0_hz)
    return {
        "voiced_frames": int(voiced.sum()),
        "heard_voiced_share": round(float(both.sum() / voiced.sum()), 4),
        "median_cents": round(float(np.median(cents[both])), 2),
        "within_20_cents_share": round(float(np.mean(cents[both] <= 20)), 4),
        "plain_within_20_cents_share": round(float(np.mean(cents_apart(plain.f0_hz, f0_hz)[both] <= 20)), 4),
        "steady_share": round(float((steady & both).sum() / both.sum()), 4),
        "steady_within_20_cents_share": round(float(np.mean(cents[steady & both] <= 20)), 4),
    }


def cents_apart(one_hz: np.ndarray, other_hz: np.ndarray) -> np.ndarray:
    """How far apart two pitches lie, frame by frame."""
    return 1200 * np.abs(np.log2(one_hz / other_hz))


def is_steady(f0_hz: np.ndarray, voiced: np.ndarray) -> np.ndarray:
    """Whether a frame's window is voiced throughout and its pitch stays within 20 cents."""
    around = np.lib.stride_tricks.sliding_window_view(np.pad(np.log2(f0_hz), WINDOW_FRAMES, "edge"), SPAN)
    sure = np.lib.stride_tricks.sliding_window_view(np.pad(voiced, WINDOW_FRAMES), SPAN)
    return (1200 * np.ptp(around, axis=1) <= 20) & sure.all(axis=1)


def plain_harmonics(f0_hz: np.ndarray, loudness_db: np.ndarray) -> np.ndarray:
    """A line played by ten harmonics, each half as strong as the one before: exactly these pitches and nothing else."""
    strength = 10 ** (np.maximum(loudness_db, -80.0) / 20)
    amplitudes = strength[:, None] * 0.5 ** np.arange(1, 11)
    line, strengths = jnp.asarray(f0_hz)[None], jnp.asarray(amplitudes, jnp.float32)[None]
    return np.asarray(oscillate(line, strengths, HOP, SAMPLE_RATE)[0])


def spectrogram(samples: np.ndarray) -> Image.Image:
    """Frequency upwards, time to the right, the louder the lighter; 80 dB from black to white."""
    starts = np.linspace(0, max(1, len(samples) - SIZE), WIDTH).astype(int)
    frames = np.stack([np.pad(samples[start : start + SIZE], (0, SIZE))[:SIZE] for start in starts])
    levels = 20 * np.log10(np.abs(np.fft.rfft(frames * np.hanning(SIZE))) + 1e-9)
    scaled = np.clip((levels - levels.max()) / RANGE_DB + 1, 0, 1)
    image = Image.fromarray((255 * scaled.T[::-1]).astype(np.uint8)).resize((WIDTH, HEIGHT))
    return image.convert("RGB")


def draw(panels: dict[str, np.ndarray], path: Path) -> None:
    """The spectrograms below each other, with seconds and kilohertz."""
    tall = HEIGHT + MARGIN
    page = Image.new("RGB", (WIDTH + 2 * MARGIN, tall * len(panels) + 10), "white")
    pen = ImageDraw.Draw(page)
    for number, (title, samples) in enumerate(panels.items()):
        top = number * tall + 22
        page.paste(spectrogram(samples), (MARGIN, top))
        pen.text((MARGIN, top - 16), title, fill="black")
        seconds = len(samples) / SAMPLE_RATE
        for second in range(int(seconds) + 1):
            place = MARGIN + WIDTH * second / seconds
            pen.line((place, top + HEIGHT, place, top + HEIGHT + 3), fill="black")
            pen.text((place - 4, top + HEIGHT + 3), f"{second} s", fill="black")
        for kilohertz in (0, 2, 4, 6, 8):
            pen.text((6, top + HEIGHT * (1 - kilohertz * 1000 / TOP_HZ) - 6), f"{kilohertz} kHz", fill="black")
    path.parent.mkdir(parents=True, exist_ok=True)
    page.quantize(64).save(path, optimize=True)


def main() -> None:
    """Print the numbers as JSON and draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("instrument", type=Path)
    parser.add_argument("prepared", type=Path)
    parser.add_argument("other", type=Path, help="a recording of another instrument, to be transferred")
    parser.add_argument("--examples", type=int, default=8)
    parser.add_argument("--octaves", type=int, default=0)
    parser.add_argument("--picture", type=Path)
    given = parser.parse_args()
    instrument = read_instrument(given.instrument)
    before = untrained(instrument)
    after_all, before_all, recorded_all, played_all = [], [], [], []
    for number in range(0, 8 * given.examples, 8):
        found = resynthesise(instrument, given.prepared, "val", number)
        start = resynthesise(before, given.prepared, "val", number).played
        after_all.append(distance(found.played, found.recorded))
        before_all.append(distance(start, found.recorded))
        recorded_all.append(found.recorded)
        played_all.append(found.played)
    source = read_whole(given.other)
    moved = transfer(instrument, given.other, TransferOptions(octaves=given.octaves))
    print(
        json.dumps(
            {
                "trained": dict(instrument.trained),
                "examples": given.examples,
                "distance_untrained": round(float(np.mean(before_all)), 3),
                "distance_trained": round(float(np.mean(after_all)), 3),
                "factor": round(float(np.mean(before_all) / np.mean(after_all)), 2),
                "resynthesis": pitch_error(np.concatenate(recorded_all), np.concatenate(played_all)),
                "transfer": pitch_error(source, moved, given.octaves),
            },
            indent=1,
        )
    )
    if given.picture is not None:
        cut = slice(2 * SAMPLE_RATE, 6 * SAMPLE_RATE)
        panels = {
            "violin, recorded (validation)": recorded_all[0],
            "the same line, played by the trained model": played_all[0],
            "flute, recorded": source[cut],
            "the flute's line, played by the trained violin": moved[cut],
        }
        draw(panels, given.picture)


if __name__ == "__main__":
    main()
