"""Sound: recordings prepared for training, the pieces of a synthesiser, and instruments that are played.

What pages, commands and scripts call, loaded when first used; none of it imports jax before something is played:

- ``prepare_recordings(source, out, cutting, show)``: a folder of recordings → a prepared folder, with
  progress; ``PreparationProgress`` is what ``show`` gets.
- ``read_prepared(folder, verify)``: its recordings, segments, statistics, and what was passed over.
- ``resynthesise(instrument, prepared, split, number)``: an example as it was recorded and as it is played.
- ``transfer(instrument, source, options)``: another recording in the instrument's timbre.
- ``write_wav(path, samples)``: samples as a wav.
- ``read_instrument(folder)`` and ``write_instrument(folder, instrument)``: import and copy.
- ``batchscale.run.export_instrument(spec, records, out)``: what ``batchscale train`` made, as an
  instrument.

``prepare_recordings`` may be stopped at any time and called again; uploads of unknown origin are safe to give to it: a
file that cannot be used is named in ``Prepared.skipped``, and nothing in it is run. All errors are ``BatchscaleError``.
Playing compiles and takes seconds: call it outside an event loop.
"""
