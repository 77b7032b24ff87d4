#!/bin/bash
set -e
cd /work/repo
git merge taxes > /dev/null || true
cat > shop.py <<'PY'
TAX = 0.2


def price(net):
    return round(net * (1 + TAX), 2)
PY
git add shop.py
git commit -qm 'Merge taxes'
