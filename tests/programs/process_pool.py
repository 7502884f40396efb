from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context


def is_prime(n):
    return n > 1 and all(n % d for d in range(2, int(n**0.5) + 1))


if __name__ == "__main__":
    with ProcessPoolExecutor(max_workers=2, mp_context=get_context("fork")) as pool:
        flags = list(pool.map(is_prime, range(2000), chunksize=200))
    print(sum(flags))
