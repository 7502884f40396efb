mkdir -p n/logs
cat > n/nginx.conf <<'C'
worker_processes 2; pid logs/pid; error_log logs/error;
events { worker_connections 64; }
http {
  access_log off; client_body_temp_path b; proxy_temp_path p; fastcgi_temp_path f; uwsgi_temp_path u;
  scgi_temp_path s; limit_req_zone $binary_remote_addr zone=one:10m rate=100r/s;
  server { listen 127.0.0.1:8080; location / { limit_req zone=one burst=5; return 200 "works\n"; } }
}
C
nginx -p "$PWD/n" -c nginx.conf && curl -s http://127.0.0.1:8080/
nginx -p "$PWD/n" -c nginx.conf -s stop 2>/dev/null
