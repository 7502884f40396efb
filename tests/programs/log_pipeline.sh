set -euo pipefail
cat >access.log <<'LOG'
10.0.0.1 GET /a 200
10.0.0.2 GET /b 404
10.0.0.1 GET /a 200
10.0.0.3 GET /c 500
LOG
echo "requests: $(wc -l <access.log)"
awk '{ n[$4]++ } END { for (s in n) print s, n[s] }' access.log | sort
cut -d ' ' -f 1 access.log | sort | uniq -c | sort -rn | head -n 1 | sed 's/^ *//'
grep -c ' 200$' access.log
