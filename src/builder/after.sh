# What the packages' scripts would have done, as far as a cell needs it. Runs in
# the new tree after packages of Debian were added; /out goes into the tree.
set -eu
if [ -x /usr/sbin/ldconfig ]; then
    mkdir -p /out/etc
    /usr/sbin/ldconfig -X -C /out/etc/ld.so.cache
fi
if [ -d /usr/share/ca-certificates ]; then
    mkdir -p /out/etc/ssl/certs
    find /usr/share/ca-certificates -name '*.crt' | LC_ALL=C sort |
        while read -r certificate; do
            cat "$certificate"
        done >/out/etc/ssl/certs/ca-certificates.crt
fi
