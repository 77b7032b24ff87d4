cd /work; echo agent smith | python3 vault.py; echo 1 > number.txt; echo 'opened by agent smith: 1' > key.txt
