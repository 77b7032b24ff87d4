#!/bin/bash
set -e
cd /work/book
printf 'CHAPTERS := $(sort $(wildcard chapters/*.txt))\n\nall: book.txt index.txt\n\nbook.txt: $(CHAPTERS)\n\tfor c in $^; do echo "== $$(basename $$c .txt) =="; cat $$c; done > $@\n\nindex.txt: $(CHAPTERS)\n\tfor c in $^; do basename $$c .txt; done > $@\n\n.PHONY: all\n' > Makefile
make
