"""Tool servers of the taskset."""
