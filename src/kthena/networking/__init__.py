"""The networking plane's control side: ModelServer and ModelRoute to a route table and statuses."""
