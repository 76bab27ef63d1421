"""The rules that are compared, one file each, with where each is published."""
