"""HTTP/1.1 on both sides of the router: server, client, connection pool, framing."""
