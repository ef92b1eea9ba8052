"""Instruments: a plug-in that learns the timbre of recordings and plays other recordings in it (DDSP).

The package brings a data set (``recordings``), models (``ddsp``, ``ddsp_small``, ``ddsp_tiny``), a task with its loss
and metric, the commands ``batchscale data audio`` and ``batchscale audio …``, and the pages below ``/instruments``. No
other package imports it: ``batchscale.plugins`` finds what is named here. To list workloads, the modules of this folder
are imported, so everything heavier lies in the folders below:

- ``sound``: recordings, their features, and folders of prepared arrays. Imports no jax.
- ``synthesis``: the differentiable synthesizers, the network and the loss.
- ``playing``: trained instruments as folders, and what they play.
"""

COMMAND_GROUPS = {"audio": "batchscale.instruments.cli.audio:make_audio_app"}
COMMANDS = {"data audio": "batchscale.instruments.cli.data_audio:data_audio"}
PAGES = "batchscale.instruments.web.pages:PAGES"
