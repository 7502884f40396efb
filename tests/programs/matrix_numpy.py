import numpy as np

A = np.array([[4.0, 1.0], [2.0, 3.0]])
values, vectors = np.linalg.eig(A)
print(np.sort(values.real), np.allclose(A @ vectors, vectors * values))
print(np.linalg.solve(A, [1, 2]))
rng = np.random.default_rng(42)
sample = rng.normal(10, 2, 10_000)
print(abs(sample.mean() - 10) < 0.1, abs(sample.std() - 2) < 0.1)
np.save("matrix.npy", A)
np.load("matrix.npy").T
