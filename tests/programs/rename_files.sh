set -eu
mkdir -p photos
for n in 1 2 3; do echo "picture $n" >"photos/IMG $n.JPG"; done
find photos -name '*.JPG' -print0 | sort -z | while IFS= read -r -d '' file; do
    name=$(basename "$file" .JPG | tr 'A-Z ' 'a-z_')
    mv "$file" "photos/$name.jpg"
done
ls photos
tar -czf photos.tar.gz photos
tar -tzf photos.tar.gz | wc -l
