# Both streams, whatever the pipes take.
import threading
def flood(descriptor):
    while True:
        os.write(descriptor, b"\1\xff" * 32768)
os.write(1, b"flood\n")
threading.Thread(target=flood, args=(2,)).start()
flood(1)
