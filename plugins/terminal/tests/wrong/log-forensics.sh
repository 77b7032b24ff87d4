echo '{"address": "203.0.113.7", "failures": 71, "users": []}' > /work/report.json
