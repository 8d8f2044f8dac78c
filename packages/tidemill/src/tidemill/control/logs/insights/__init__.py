"""CloudWatch Logs Insights: its query language, and queries that run in processes of their own."""
