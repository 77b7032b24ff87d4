cd /work/book; for c in chapters/*.txt; do n=$(basename $c .txt); echo "== $n =="; cat $c; done > book.txt; ls chapters | sed 's/.txt//' > index.txt
