# A small file, and one whose holes take longer to read than there is time.
import time
open("/workspace/a", "w").write("small")
with open("/workspace/z", "wb") as file:
    file.truncate(12 << 30)
print("flood", flush=True)
while True:
    time.sleep(1)
