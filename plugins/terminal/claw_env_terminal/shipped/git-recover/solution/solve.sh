#!/bin/bash
set -e
cd /work/repo
git branch feature/search "$(git log -g --format='%h %s' | awk '/Add search/ {print $1; exit}')"
git revert --no-edit main
