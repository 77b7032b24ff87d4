cd /work/repo; git branch feature/search main; git reset -q --hard HEAD~1
