"""GAIA's toolchain: an embedded, offline world of files, pages and tools, with tasks that have exact answers."""
