#!/bin/bash
set -e
cd /work
sqlite3 -csv shop.db "select name, printf('%.2f', sum(cents)/100.0) from customer join orders on customer_id = customer.id group by customer.id order by sum(cents) desc limit 3" > top.csv
sqlite3 shop.db "select name from customer where id not in (select customer_id from orders) order by name" > silent.txt
