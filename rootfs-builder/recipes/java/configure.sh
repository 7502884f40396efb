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

# The classes that every program loads, and those of the compiler and JShell, mapped
# rather than parsed.
list=$(mktemp)
echo 'List.of(1).stream().map(n -> n + 1).toList()' |
    "$home/bin/jshell" --execution local -J-XX:DumpLoadedClassList="$list" - >/dev/null
# In one order, so that the archive is the same each time.
LC_ALL=C sort -u -o "$list" "$list"
mkdir -p ".$home/lib/server"
"$home/bin/java" -Xshare:dump -XX:SharedArchiveFile="$PWD$home/lib/server/classes.jsa" \
    -XX:SharedClassListFile="$list" >/dev/null 2>&1
rm "$list"

# What cellblock has Java run (crates/languages/src/java), which would otherwise be compiled
# at each start: by the name under which cellblock looks for this very source.
place=$PWD/usr/lib/cellblock/java
name=$(sha256sum /recipe/Shim.java | cut -c 1-16)
classes=$(mktemp -d)
mkdir -p "$place"
"$home/bin/javac" -proc:none -d "$classes" /recipe/Shim.java
# Of the same files, the same archive: in one order, with one date.
(cd "$classes" && "$home/bin/jar" --create --date=2000-01-01T00:00:00Z \
    --file "$place/$name.jar" $(ls | LC_ALL=C sort))
rm -r "$classes"
