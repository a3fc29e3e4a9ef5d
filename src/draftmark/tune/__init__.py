"""Plan, statistics, decision: pure. A runner joins them to a service and a load."""
