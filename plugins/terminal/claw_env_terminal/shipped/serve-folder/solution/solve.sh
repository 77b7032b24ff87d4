#!/bin/bash
set -e
cd /work
cat > server.py <<'PY'
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer


class Handler(SimpleHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/health":
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")
        else:
            super().do_GET()


ThreadingHTTPServer(("127.0.0.1", 8080), partial(Handler, directory="/work/public")).serve_forever()
PY
setsid python3 server.py > server.log 2>&1 < /dev/null &
for i in $(seq 50); do python3 -c "import socket; socket.create_connection(('127.0.0.1', 8080))" 2>/dev/null && exit 0; sleep 0.1; done
exit 1
