declare -A stock=([apple]=3 [pear]=5)
total=0
for fruit in "${!stock[@]}"; do total=$((total + stock[$fruit])); done
echo "total $total"
factorial() { if (($1 < 2)); then echo 1; else echo $(($1 * $(factorial $(($1 - 1))))); fi; }
factorial 10
seq 5 | paste -sd+ - 
date -u -d '2024-02-28 +2 days' +%F
exit 3
