"""Property tests draw new examples on every run, but the same ones where CI says so: a landing is not a lottery."""

import os

from hypothesis import settings

settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")
