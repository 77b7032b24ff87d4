echo 'hello, claw' > /work/hello.txt
