def f(x):
    return 1 / x


print("before")
f(0)
