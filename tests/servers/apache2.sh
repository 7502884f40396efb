cat > h.conf <<C
ServerRoot $PWD
ServerName localhost
Listen 127.0.0.1:8081
PidFile $PWD/pid
ErrorLog $PWD/error
Mutex file:$PWD default
LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
DocumentRoot $PWD/site
C
mkdir site && echo works > site/index.html
apache2 -f "$PWD/h.conf" && curl -s --retry 50 --retry-connrefused --retry-delay 1 http://127.0.0.1:8081/index.html
apache2 -f "$PWD/h.conf" -k stop
