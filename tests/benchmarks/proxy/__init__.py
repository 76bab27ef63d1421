"""The cost of the proxy, compared with a bare pass-through made with the same library."""
