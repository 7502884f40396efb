redis-server --port 0 --unixsocket "$PWD/socket" --daemonize yes --dir "$PWD" > log
until redis-cli -s socket ping > pong 2>&1; do sleep 0.1; done
redis-cli -s socket set a works > set
redis-cli -s socket save > saved
redis-cli -s socket get a
redis-cli -s socket shutdown
