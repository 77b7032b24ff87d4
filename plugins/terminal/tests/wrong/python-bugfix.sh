cd /work; sed -i 's/    return total/    return total + VALUES[word[-1]]/' roman.py
