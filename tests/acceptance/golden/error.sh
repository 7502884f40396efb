echo before
f() { return 3; }
f
