cd /work; mkdir x; tar -xf parcel.bin -C x; cat x/part-1 > message.txt 2>/dev/null; echo 'The parcel was heavy,' > message.txt
