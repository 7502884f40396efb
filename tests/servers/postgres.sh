for bin in /usr/lib/postgresql/*/bin; do PATH=$bin:$PATH; done
export LC_ALL=C
initdb -D "$PWD/d" -U me -A trust -N > log || cat log >&2
pg_ctl -D "$PWD/d" -w -l log -o "-k $PWD -c listen_addresses=" start > started || cat log >&2
psql -h "$PWD" -U me -qAt postgres -c "create table t as select generate_series(1, 100) a" \
  -c "select case sum(a) when 5050 then 'works' end from t"
pg_ctl -D "$PWD/d" -w stop > stopped
