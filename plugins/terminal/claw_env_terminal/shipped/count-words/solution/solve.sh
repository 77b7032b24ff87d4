#!/bin/bash
set -e
cd /work
wc -w < poem.txt > words.txt
wc -l < poem.txt > lines.txt
