cat > /work/next.py <<'PY'
import sys
from datetime import datetime, timedelta
for line in sys.stdin:
    day, clock, *rule = line.split()
    t = datetime.fromisoformat(f"{day} {clock}") + timedelta(hours=1)
    print(t.replace(minute=0).strftime("%Y-%m-%d %H:%M"))
PY
