"""The web interface: every experiment under a folder in a browser, read, watched, started, stopped and planned with.

The server only reads files, starts driver processes that outlive it, and signals those that are proven ours. It never
trains and never loads JAX. FastAPI is used here and nowhere else. docs/web.md has the pages and the attack list.
"""

from typing import TYPE_CHECKING

from batchscale.doors import lazy_names

if TYPE_CHECKING:
    from batchscale.web.access import Access as Access
    from batchscale.web.app import create_app as create_app
    from batchscale.web.server import bind as bind
    from batchscale.web.server import serve as serve
    from batchscale.web.settings import Limits as Limits
    from batchscale.web.settings import WebSettings as WebSettings
    from batchscale.web.settings import check_settings as check_settings
    from batchscale.web.settings import default_state as default_state

_PUBLIC = {
    "Access": "access",
    "Limits": "settings",
    "WebSettings": "settings",
    "bind": "server",
    "check_settings": "settings",
    "create_app": "app",
    "default_state": "settings",
    "serve": "server",
}

__all__ = [*_PUBLIC]
__getattr__, __dir__ = lazy_names(__name__, _PUBLIC)
