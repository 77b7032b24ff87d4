cd /work; setsid python3 -m http.server 8080 --bind 127.0.0.1 --directory /work/public >/dev/null 2>&1 </dev/null & sleep 1
