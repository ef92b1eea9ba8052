"""The web interface: every experiment under a folder in a browser, to read, monitor, start, stop and plan with.

The server reads files, starts processes that outlive it, and stops those that are proven to be its own. It never trains
and never loads JAX. FastAPI is used here and nowhere else. docs/web.md has the pages and the attack list.
"""
