int f(int x) {
  return 1 / x;
}

System.out.println("before");
f(0)
