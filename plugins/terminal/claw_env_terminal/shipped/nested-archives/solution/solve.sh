#!/bin/bash
set -e
cd /work
mkdir x
tar -xf parcel.bin -C x
cd x
base64 -d letter.txt > letter.zip
unzip -q letter.zip
xz -dc crate.data > crate.tar
tar -xf crate.tar
gzip -dc box > box.tar
tar -xf box.tar
cat part-1 part-2 part-3 > ../message.txt
