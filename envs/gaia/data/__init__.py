"""Snapshots of public data; see ``snapshot.py``."""
