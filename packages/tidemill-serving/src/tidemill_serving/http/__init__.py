"""HTTP/1.1 on asyncio and httptools: connections, limits, bodies, drain. Independent of models."""
