import subprocess
import sys

listing = subprocess.run("printf 'b\\na\\n' | sort", shell=True, capture_output=True, text=True, check=True)
print(listing.stdout.split())
child = subprocess.run([sys.executable, "-c", "import sys; print(sys.stdin.read().upper())"],
                       input="quiet", capture_output=True, text=True, timeout=100)
print(child.stdout.strip(), child.returncode)
print(subprocess.run(["false"]).returncode)
