# What scripts of Debian's packages would have done; the working directory goes
# into the tree.
set -eu

# By update-alternatives.
mkdir -p usr/bin
ln -s mawk usr/bin/awk
ln -s which.debianutils usr/bin/which

# By the package openssl: where the library looks for public certificates.
mkdir -p usr/lib/ssl
ln -s /etc/ssl/certs/ca-certificates.crt usr/lib/ssl/cert.pem
