touch file
fakeroot-sysv sh -c 'chown 7:8 file; test "$(stat -c %u:%g file)" = 7:8 && echo works'
