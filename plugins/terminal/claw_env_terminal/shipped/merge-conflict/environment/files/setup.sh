set -e
git init -q -b main /work/repo && cd /work/repo
git config user.name agent && git config user.email agent@localhost
printf '*.pyc\n__pycache__/\n' > .gitignore
printf 'def price(net):\n    return net\n' > shop.py && git add . && git commit -qm 'Add shop'
git checkout -q -b taxes
printf 'TAX = 0.2\n\n\ndef price(net):\n    return net * (1 + TAX)\n' > shop.py && git commit -qam 'Add taxes'
git checkout -q main
printf 'def price(net):\n    return round(net, 2)\n' > shop.py && git commit -qam 'Round prices'
