"""A solo line of an instrument that nobody has to record: a random melody, played by fluidsynth with a sound font.

Needs Debian's packages fluidsynth and fluid-soundfont-gm, and mido. Thirteen minutes take about ten seconds:

    python examples/ddsp/render.py build/ddsp/violin --minutes 13
    python examples/ddsp/render.py build/ddsp/flute --minutes 0.5 --program 73 --seed 7
"""

import argparse
import random
import subprocess
from pathlib import Path

import mido

SOUND_FONT = "/usr/share/sounds/sf2/FluidR3_GM.sf2"
VIOLIN = 40  # General MIDI, counted from 0; 73 is the flute, 71 the clarinet, 65 the alto saxophone
SCALE = (0, 2, 4, 5, 7, 9, 11)
TICKS = 480  # of a quarter, half a second


def melody(minutes: float, seed: int, low: int, high: int) -> list[tuple[int | None, int]]:
    """Notes (None: a rest) with their ticks: a walk along a major scale, with longer notes at its turns."""
    choose = random.Random(seed)
    steps = [note for note in range(low, high + 1) if note % 12 in SCALE]
    place, notes, ticks = len(steps) // 2, [], 0
    while ticks < minutes * 120 * TICKS:
        length = choose.choice((TICKS // 2, TICKS // 2, TICKS, TICKS, 2 * TICKS))
        rest = choose.random() < 0.06
        place = min(max(place + choose.choice((-3, -2, -1, -1, 1, 1, 2, 3)), 0), len(steps) - 1)
        notes.append((None if rest else steps[place], length))
        ticks += length
    return notes


def write_midi(path: Path, notes: list[tuple[int | None, int]], program: int, seed: int) -> None:
    """The notes as a MIDI file, each swelling and dying away by the expression controller."""
    choose = random.Random(seed + 1)
    track = mido.MidiTrack([mido.Message("program_change", program=program)])
    track.append(mido.Message("control_change", control=91, value=0))  # no reverb and no chorus of the synthesiser's
    track.append(mido.Message("control_change", control=93, value=0))
    waiting = 0
    for note, length in notes:
        if note is None:
            waiting += length
            continue
        peak, start = choose.randint(70, 127), choose.randint(40, 90)
        track.append(mido.Message("control_change", control=11, value=start, time=waiting))
        track.append(mido.Message("note_on", note=note, velocity=choose.randint(60, 110)))
        parts = 8
        for part in range(1, parts + 1):
            level = start + (peak - start) * (1 - abs(2 * part / parts - 1))
            track.append(mido.Message("control_change", control=11, value=round(level), time=length // parts))
        track.append(mido.Message("note_off", note=note))
        waiting = length - parts * (length // parts)
    mido.MidiFile(ticks_per_beat=TICKS, tracks=[track]).save(path)


def main() -> None:
    """Write ``line.mid`` and ``line.wav`` into the folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--minutes", type=float, default=13)
    parser.add_argument("--program", type=int, default=VIOLIN)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--low", type=int, default=57)
    parser.add_argument("--high", type=int, default=81)
    parser.add_argument("--sound-font", default=SOUND_FONT)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    midi, wav = given.out / "line.mid", given.out / "line.wav"
    write_midi(midi, melody(given.minutes, given.seed, given.low, given.high), given.program, given.seed)
    command = ["fluidsynth", "-ni", "-q", "-g", "2.5", "-r", "16000", "-F", str(wav), given.sound_font, str(midi)]
    subprocess.run(command, check=True)
    print(wav)


if __name__ == "__main__":
    main()
