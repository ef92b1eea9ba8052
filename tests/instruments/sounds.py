"""Instruments made by code, whose pitch is known."""

import io
import math
import struct
import wave

import numpy as np

RATE = 16_000


def tone(f0_hz, seconds, rate=RATE, harmonics=8, level=0.3):
    """A steady tone whose harmonics fall off as 1/n."""
    times = np.arange(round(seconds * rate)) / rate
    parts = [np.sin(2 * np.pi * f0_hz * n * times) / n for n in range(1, harmonics + 1) if f0_hz * n < rate / 2]
    return (level * sum(parts) / max(1, len(parts)) ** 0.5).astype(np.float32)


def melody(notes_hz, seconds_each=0.5, rate=RATE):
    """Notes one after the other, each rising and dying away."""
    shape = np.sin(np.pi * np.linspace(0, 1, round(seconds_each * rate))) ** 0.3
    return np.concatenate([tone(note, seconds_each, rate) * shape for note in notes_hz]).astype(np.float32)


def silence(seconds, rate=RATE):
    return np.zeros(round(seconds * rate), np.float32)


def make_wav(seconds: float = 0.5, rate: int = 16_000, notes: tuple[float, ...] = (220.0,)) -> bytes:
    """A recording made by code: notes with harmonics, each rising and dying away."""
    target, each = io.BytesIO(), seconds / len(notes)
    values = []
    for sample in range(round(seconds * rate)):
        at = sample / rate
        note, inside = notes[min(len(notes) - 1, int(at / each))], (at % each) / each
        tone = sum(math.sin(2 * math.pi * note * n * at) / n for n in range(1, 6))
        values.append(round(6000 * tone * math.sin(math.pi * inside) ** 0.3))
    with wave.open(target, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(struct.pack(f"<{len(values)}h", *values))
    return target.getvalue()
