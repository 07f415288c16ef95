"""The tests' own real parts: clips with readable frame numbers, a Redis server, RTSP servers, waiting with a deadline."""
