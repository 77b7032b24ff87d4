#!/bin/bash
set -e
cd /work
{ echo region,revenue; awk -F, 'NR>1 {s[$2]+=$4*$5} END {for (k in s) printf "%s,%.2f\n", k, s[k]}' sales.csv | sort; } > regions.csv
awk -F, 'NR>1 {s[substr($1,1,7)]+=$4} END {for (k in s) print s[k], k}' sales.csv | sort -nr | head -1 | cut -d' ' -f2 > best_month.txt
