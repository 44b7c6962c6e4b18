"""Snapshots of public data: ``snapshot`` makes them, ``document`` describes them in DATA.md."""
