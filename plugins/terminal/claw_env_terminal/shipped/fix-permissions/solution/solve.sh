#!/bin/bash
set -e
cd /work/site
chmod 700 deploy.sh
chmod 600 secrets.env
chmod 755 public
chmod 644 public/*
