import threading
import time
from concurrent.futures import ThreadPoolExecutor, as_completed

lock = threading.Lock()
seen = []


def work(n):
    time.sleep(0.01)
    with lock:
        seen.append(n)
    return n * n


with ThreadPoolExecutor(max_workers=8) as pool:
    futures = {pool.submit(work, n): n for n in range(20)}
    total = sum(future.result() for future in as_completed(futures))
print(total, len(seen))
