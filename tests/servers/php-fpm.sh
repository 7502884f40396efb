cat > f.conf <<C
[global]
error_log = $PWD/error
pid = $PWD/pid
[www]
listen = $PWD/socket
pm = static
pm.max_children = 2
C
for fpm in /usr/sbin/php-fpm*; do break; done
"$fpm" -D -y "$PWD/f.conf" && php -r 'echo stream_socket_client("unix://socket") ? "works\n" : "";'
kill "$(cat pid)"
