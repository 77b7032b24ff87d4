#!/bin/bash
set -e
echo 'Hello, claw!' > /work/hello.txt
