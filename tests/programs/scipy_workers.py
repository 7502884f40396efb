import numpy as np
from scipy.optimize import curve_fit, differential_evolution, linprog

x = np.linspace(0, 4, 40)
y = 2.5 * np.exp(-1.3 * x) + 0.5
popt, _ = curve_fit(lambda x, a, b, c: a * np.exp(-b * x) + c, x, y, p0=(1, 1, 0))
print(np.round(popt, 3))
best = differential_evolution(lambda p: (p[0] - 1) ** 2 + (p[1] + 2) ** 2, [(-5, 5), (-5, 5)], seed=1)
print(np.round(best.x, 3))
plan = linprog([-3, -2], A_ub=[[1, 1], [1, 3]], b_ub=[4, 6])
print(plan.status, round(-plan.fun, 3))
