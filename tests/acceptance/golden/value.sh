echo kept > out.txt
echo "sum: $((1 + 2))"
echo 'a word' >&2
