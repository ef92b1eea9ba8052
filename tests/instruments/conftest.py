"""The server under test is that of the tests of the web."""

import importlib.util
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
_spec = importlib.util.spec_from_file_location("web_conftest", Path(__file__).parents[1] / "web" / "conftest.py")
_web = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_web)
_children_are_collected, few, make_site, site = _web._children_are_collected, _web.few, _web.make_site, _web.site
