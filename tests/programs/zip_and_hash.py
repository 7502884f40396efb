import gzip
import hashlib
import pathlib
import shutil
import tempfile
import zipfile

base = pathlib.Path(tempfile.mkdtemp())
for n in range(3):
    (base / f"part{n}.txt").write_text(f"part {n}\n" * 100)
with zipfile.ZipFile("parts.zip", "w", zipfile.ZIP_DEFLATED) as z:
    for path in sorted(base.glob("*.txt")):
        z.write(path, path.name)
with zipfile.ZipFile("parts.zip") as z:
    print(z.namelist(), z.testzip())
digest = hashlib.sha256(b"".join(p.read_bytes() for p in sorted(base.iterdir()))).hexdigest()
with gzip.open("all.txt.gz", "wb") as out:
    for path in sorted(base.iterdir()):
        out.write(path.read_bytes())
print(digest == hashlib.sha256(gzip.open("all.txt.gz").read()).hexdigest())
shutil.rmtree(base)
