"""CloudWatch Logs Insights: its query language, and separate processes that run queries."""
