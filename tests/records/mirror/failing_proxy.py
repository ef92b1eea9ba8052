"""A proxy in front of an object store that fails as networks and servers do, and a small tree to copy."""

import http.client
import http.server
import threading
import time


class Proxy:
    """Passes requests on to the server, but for those that ``trouble`` names by their number.

    500, 401: it answers so. hang: it says nothing for five seconds. drop: the connection ends before the server has
    got the whole. cut: it ends before the client has.
    """

    def __init__(self, port):
        self.trouble, self.requests = {}, 0
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"  # clients ask whether to go on before they send a file

            def handle_any(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                proxy.requests += 1
                trouble = proxy.trouble.get(proxy.requests)
                if trouble == "hang":
                    time.sleep(5)
                    self.close_connection = True
                    return
                if trouble == "drop":
                    self.close_connection = True
                    return
                if trouble in ("500", "401"):
                    self.send_error(int(trouble))
                    return
                server = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
                server.request(
                    self.command,
                    self.path,
                    body,
                    {name: value for name, value in self.headers.items() if name != "Expect"},
                )
                answer = server.getresponse()
                content = answer.read()
                server.close()
                self.send_response(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                        self.send_header(name, value)
                length = answer.getheader("Content-Length") if self.command == "HEAD" else len(content)
                self.send_header("Content-Length", str(length or 0))
                self.end_headers()
                self.wfile.write(content[: len(content) // 2] if trouble == "cut" else content)
                self.close_connection = trouble == "cut"

            def log_message(self, *_):
                """Nothing."""

        for method in ("GET", "PUT", "HEAD", "POST", "DELETE"):
            setattr(Handler, f"do_{method}", Handler.handle_any)
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


def make_tree(root):
    """Three small files of records."""
    for number in range(3):
        path = root / f"digits/fc/sgd/8/{number}/measurements.csv"
        path.parent.mkdir(parents=True)
        path.write_text(f"step,val/loss\n0,{number}\n" * 100)
    return root


def contents(root):
    """What every file of a tree holds."""
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}
