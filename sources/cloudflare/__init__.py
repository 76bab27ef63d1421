"""Cloudflare Queues: a module for Workers that reports what becomes of messages, and a collector of its REST API."""
