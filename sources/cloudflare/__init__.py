"""Cloudflare Queues: a module for Workers that reports the fate of messages, and a collector for its REST API."""
