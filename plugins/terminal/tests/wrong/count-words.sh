cd /work; wc poem.txt > words.txt; wc -l < poem.txt > lines.txt
