from sympy import Eq, Matrix, diff, dsolve, Function, integrate, latex, solve, symbols, sin

x, y = symbols("x y")
print(solve([Eq(x + y, 5), Eq(x - y, 1)], [x, y]))
print(integrate(x * sin(x), x), diff(x**3, x))
print(Matrix([[2, 1], [1, 2]]).eigenvals())
f = Function("f")
print(dsolve(f(x).diff(x) - f(x), f(x)))
latex(x**2 / 2)
