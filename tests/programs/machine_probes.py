import os

import joblib
import psutil

with open("/sys/fs/cgroup/memory.max") as limit:
    MEMORY = int(limit.read())

print(os.cpu_count(), psutil.cpu_count(), joblib.cpu_count(), joblib.effective_n_jobs(-1))
memory = psutil.virtual_memory()
print(memory.total == MEMORY, 0 < memory.available <= MEMORY, 0 <= memory.percent <= 100)
print(psutil.swap_memory().total, psutil.cpu_percent(interval=0.01) >= 0, psutil.boot_time() > 0)
print(psutil.disk_usage("/workspace").total == 256 << 20)
me = psutil.Process()
print(me.name(), me.status(), me.username(), me.num_threads() >= 1, me.memory_info().rss > 0)
print([process.pid for process in psutil.process_iter()] == [os.getpid()])
with me.oneshot():
    print(me.cpu_times().user >= 0, me.cwd(), me.parent(), me.children(), len(me.open_files()))
