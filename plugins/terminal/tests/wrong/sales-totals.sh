cd /work
{ echo region,revenue; awk -F, 'NR>1 {s[$2]+=$4} END {for (k in s) print k "," s[k]}' sales.csv | sort; } > regions.csv
echo 2026-01 > best_month.txt
