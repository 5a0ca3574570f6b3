#!/bin/sh
# Prints the total of an order in cents. Each line of the file is: name,quantity,price
total=0
while IFS=, read -r name quantity price; do
    total=$((total + price))
done < "$1"
echo "$total"
