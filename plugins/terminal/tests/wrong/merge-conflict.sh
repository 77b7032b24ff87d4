cd /work/repo; git merge -q -X ours taxes -m merged || true
