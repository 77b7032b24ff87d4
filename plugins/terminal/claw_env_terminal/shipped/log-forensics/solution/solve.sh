#!/bin/bash
set -e
cd /work
address=$(awk '/Failed/ {print $(NF-3)}' auth.log | sort | uniq -c | sort -nr | awk 'NR==1 {print $2}')
failures=$(grep Failed auth.log | grep -c "from $address ")
users=$(grep Accepted auth.log | grep "from $address " | sed 's/.* for \([^ ]*\) from.*/\1/' | sort -u | jq -R . | jq -s .)
jq -n --arg a "$address" --argjson f "$failures" --argjson u "$users" '{address: $a, failures: $f, users: $u}' > report.json
