set -e
export GIT_AUTHOR_DATE=2026-01-01T00:00:00Z GIT_COMMITTER_DATE=2026-01-01T00:00:00Z
git init -q -b main /work/repo && cd /work/repo
git config user.name agent && git config user.email agent@localhost
echo "print('app')" > app.py && git add . && git commit -qm 'Add app'
git checkout -q -b feature/search
printf 'def search(items, word):\n    return [i for i in items if word in i]\n' > search.py
git add . && git commit -qm 'Add search'
git checkout -q main && git branch -q -D feature/search
echo 'raise SystemExit' > app.py && git commit -qam 'Speed things up'
