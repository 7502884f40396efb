set -eu
[ "$(seq 3 | paste -sd+ -)" = 1+2+3 ]
[ "$(printf 'b\na\n' | sort | head -n 1)" = a ]
[ "$(echo a1b2 | sed 's/[0-9]//g')" = ab ]
[ "$(echo 'x 3' | awk '{ print $2 * 2 }')" = 6 ]
echo needle >hay
grep -q needle hay
find . -name hay | xargs -n 1 test -f
tar -czf hay.tar.gz hay
rm hay
tar -xzf hay.tar.gz
diff hay <(echo needle)
[ "$(TZ=Europe/Paris date -d '2024-07-01T12:00:00Z' +%H:%M)" = 14:00 ]
getent services https >/dev/null
[ "$(printf '\303\251' | iconv -f UTF-8 -t ISO-8859-1 | od -An -tx1)" = ' e9' ]
grep -q 'BEGIN CERTIFICATE' /etc/ssl/certs/ca-certificates.crt
[ "$(which sh)" = /usr/bin/sh ]
id -un >/dev/null
