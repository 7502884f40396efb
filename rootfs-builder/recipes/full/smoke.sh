set -eu
# A home may lack, or belong to nobody.
export HOME=$PWD GIT_CONFIG_NOSYSTEM=1

git init --quiet --initial-branch=main project
cd project
echo 'needle in text' >hay.txt
git add hay.txt
git -c user.name=A -c user.email=a@example.org commit --quiet --message 'first'
echo more >>hay.txt
git diff --stat | grep -q '1 insertion'
[ "$(git log --format=%s)" = first ]
git clone --quiet . ../copy
[ "$(cat ../copy/hay.txt)" = 'needle in text' ]

[ "$(echo '{"a": [1, 2, 3]}' | jq '.a | add')" = 6 ]
[ "$(rg --count needle hay.txt)" = 1 ]
[ "$(file --brief --mime-type hay.txt)" = text/plain ]
zip -q hay.zip hay.txt
mkdir out
unzip -q hay.zip -d out
cmp hay.txt out/hay.txt
[ "$(file --brief --mime-type hay.zip)" = application/zip ]
printf 'all: copy\n\ncopy: hay.txt\n\tcp $< $@\n' >Makefile
make --silent
cmp hay.txt copy
[ "$(curl --silent "file://$PWD/hay.txt" | head -n 1)" = 'needle in text' ]
curl --version | grep -q https
[ "$(less hay.txt | wc -l)" = 2 ]

# They look for the machine in /proc, which shows one of the cell's size.
free -b | grep -q '^Mem:'
uptime | grep -q 'load average'
ps aux | grep -q 'smoke\.sh'
top -b -n 1 | grep -q '^MiB Mem'
[ "$(pgrep -c -f smoke.sh)" -ge 1 ]
lscpu | grep -q '^CPU(s):'
[ -n "$(hostname)" ]
[ "$(printf 'a b\nccc d\n' | column -t | head -n 1)" = 'a    b' ]
[ "$(echo abc | rev)" = cba ]
flock lock true
