"""``python -m batchscale``: the same as the ``batchscale`` command."""

from batchscale.cli.app import main

if __name__ == "__main__":
    main()
