import subprocess

subprocess.run(["ffmpeg", "-version"], check=True)
