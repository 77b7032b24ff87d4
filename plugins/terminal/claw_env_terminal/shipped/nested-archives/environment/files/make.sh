set -e
cd /tmp && mkdir parcel && cd parcel
echo 'The parcel was heavy,' > part-1
echo 'but the message was light:' > part-2
echo 'carry less.' > part-3
tar -cf - part-2 | gzip -c > box
tar -cf - box part-3 | xz -c > crate.data
python3 -c "import zipfile; z = zipfile.ZipFile('letter.zip', 'w'); z.write('part-1'); z.write('crate.data')"
base64 letter.zip > letter.txt
tar -cjf /work/parcel.bin letter.txt 2>/dev/null || tar -czf /work/parcel.bin letter.txt
chown 1000:1000 /work/parcel.bin
rm -r /tmp/parcel /work/make.sh
