"""The web interface: every experiment under a folder in a browser, read, watched, started, stopped and planned with.

The server only reads files, starts driver processes that outlive it, and signals those that are proven ours. It never
trains and never loads JAX. FastAPI is used here and nowhere else. docs/web.md has the pages and the attack list.
"""
