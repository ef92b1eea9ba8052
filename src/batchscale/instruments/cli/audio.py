"""``batchscale audio``: export a trained instrument, and play with it."""

from pathlib import Path
from typing import Annotated

import typer

from batchscale.cli.output import print_json
from batchscale.cli.selection import print_notice

VERSION = 1

InstrumentFolder = Annotated[
    Path, typer.Argument(help="The folder of an instrument, made by `batchscale audio export`.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print a JSON object.")]


def make_audio_app() -> typer.Typer:
    """Return the commands under ``batchscale audio``."""
    app = typer.Typer(help="Instruments: export, play, transfer.", no_args_is_help=True, rich_markup_mode=None)
    app.command("export")(audio_export)
    app.command("transfer")(audio_transfer)
    app.command("resynthesise")(audio_resynthesise)
    return app


def audio_export(
    experiment: Annotated[Path, typer.Argument(help="The experiment file that was trained.")],
    records: Annotated[Path, typer.Option("--from", help="The --out of `batchscale train`.")],
    out: Annotated[Path, typer.Option(help="A new folder for the instrument.")],
    batch_size: Annotated[int | None, typer.Option("--batch-size", "-b", min=1, help="Default: the only one.")] = None,
    trial: Annotated[int | None, typer.Option(min=1, help="The trial; default: the last.")] = None,
    as_json: AsJson = False,
) -> None:
    """Export a trained model as one folder: plain arrays and JSON, to be taken anywhere."""
    from batchscale.instruments.playing.instrument import export_instrument
    from batchscale.spec.file import read_experiment

    instrument = export_instrument(read_experiment(experiment).workload, records, out, batch_size, trial)
    if as_json:
        print_json({"version": VERSION, "path": str(out), "trained": dict(instrument.trained)})
        return
    typer.echo(str(out))


def audio_transfer(
    instrument: InstrumentFolder,
    recording: Annotated[Path, typer.Argument(help="A recording of one voice or instrument: wav, flac, ogg, mp3.")],
    out: Annotated[Path, typer.Option(help="The wav to write.")],
    octaves: Annotated[int, typer.Option(help="Move the pitch by so many octaves.")] = 0,
    match_loudness: Annotated[
        bool, typer.Option("--match-loudness/--own-loudness", help="As loud as the training recordings, or as it is.")
    ] = True,
    silence: Annotated[float, typer.Option(metavar="DB", help="Below this a frame is silent.")] = -60.0,
    confidence: Annotated[float, typer.Option(help="With less confidence in its pitch a frame is silent.")] = 0.5,
    seed: Annotated[int, typer.Option(min=0, help="Chooses the noise.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Play a recording in the timbre of an instrument."""
    from batchscale.instruments.playing.instrument import read_instrument
    from batchscale.instruments.playing.transfer import TransferOptions, transfer, write_wav
    from batchscale.instruments.sound.recordings import SAMPLE_RATE

    options = TransferOptions(octaves, match_loudness, silence, confidence, seed)
    samples = transfer(read_instrument(instrument), recording, options, print_notice)
    write_wav(out, samples)
    if as_json:
        print_json({"version": VERSION, "path": str(out), "seconds": len(samples) / SAMPLE_RATE})
        return
    typer.echo(str(out))


def audio_resynthesise(
    instrument: InstrumentFolder,
    prepared: Annotated[Path, typer.Argument(help="A folder of prepared recordings.")],
    out: Annotated[Path, typer.Option(help="The wav to write.")],
    split: Annotated[str, typer.Option(help="train or val.")] = "val",
    example: Annotated[int, typer.Option(min=0, help="The number of an example of four seconds.")] = 0,
    recorded: Annotated[Path | None, typer.Option(help="Write the recorded example too, for comparison.")] = None,
    as_json: AsJson = False,
) -> None:
    """Play an example of the recordings that the instrument was trained on."""
    from batchscale.instruments.playing.instrument import read_instrument
    from batchscale.instruments.playing.transfer import resynthesise, write_wav

    example_sounds = resynthesise(read_instrument(instrument), prepared, split, example)
    write_wav(out, example_sounds.played)
    if recorded is not None:
        write_wav(recorded, example_sounds.recorded)
    if as_json:
        print_json({"version": VERSION, "path": str(out), "recorded": None if recorded is None else str(recorded)})
        return
    typer.echo(str(out))
