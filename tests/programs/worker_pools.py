from multiprocessing.pool import ThreadPool

import joblib
import numpy as np
from scipy.optimize import differential_evolution


def square(n):
    return n * n


def cost(p):
    return (p[0] - 1) ** 2 + (p[1] + 2) ** 2


if __name__ == "__main__":
    with ThreadPool(100) as pool:
        print(sum(pool.map(square, range(1000))))
    print(joblib.Parallel(n_jobs=2)(joblib.delayed(square)(n) for n in range(5)))
    best = differential_evolution(cost, [(-5, 5), (-5, 5)], seed=1, workers=2, updating="deferred")
    print(np.round(best.x, 3))
