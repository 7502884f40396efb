# What scripts of Debian's packages would have done; the working directory goes
# into the tree.
set -eu

for home in /usr/lib/jvm/java-21-openjdk-*; do :; done

# By update-alternatives.
mkdir -p usr/bin
for program in "$home"/bin/*; do
    ln -s "../lib/jvm/${home##*/}/bin/${program##*/}" usr/bin/
done

# By ca-certificates-java, but the same each time.
mkdir -p etc/ssl/certs/java
"$home/bin/java" /recipe/Certificates.java /etc/ssl/certs/ca-certificates.crt \
    etc/ssl/certs/java/cacerts

# The classes that every program loads, mapped rather than parsed.
mkdir -p ".$home/lib/server"
"$home/bin/java" -Xshare:dump -XX:SharedArchiveFile="$PWD$home/lib/server/classes.jsa" \
    >/dev/null 2>&1
