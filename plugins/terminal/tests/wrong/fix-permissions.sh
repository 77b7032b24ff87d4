cd /work/site; chmod 755 deploy.sh public; chmod 644 public/*; chmod 600 secrets.env
