"""What a host counts, for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_CALL_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


class HostMetrics:
    """One host's numbers, in a registry of their own. Labels come from what is served, never from clients."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self.sessions = Gauge("aworld_host_sessions", "Sessions that are open.", ["toolchain"], registry=registry)
        self.slots = Gauge("aworld_host_session_slots", "Sessions that may be open.", registry=registry)
        self.queue = Gauge("aworld_host_queue", "Clients that wait for a session.", registry=registry)
        self.opened = Counter("aworld_host_sessions_opened", "Sessions opened.", ["toolchain"], registry=registry)
        self.closed = Counter(
            "aworld_host_sessions_closed", "Sessions closed, by why.", ["toolchain", "why"], registry=registry
        )
        self.refused = Counter("aworld_host_refused", "Requests refused, by why.", ["why"], registry=registry)
        self.opening = Histogram(
            "aworld_host_open_seconds",
            "From a request for a session until its tools are there, the queue included.",
            ["toolchain"],
            buckets=_CALL_BUCKETS,
            registry=registry,
        )
        self.calls = Counter(
            "aworld_host_calls", "Tool calls, by how they ended.", ["toolchain", "end"], registry=registry
        )
        self.errors = Counter(
            "aworld_host_errors", "Infrastructure failures, by kind.", ["toolchain", "kind"], registry=registry
        )
        self.latency = Histogram(
            "aworld_host_call_seconds", "Tool calls.", ["toolchain"], buckets=_CALL_BUCKETS, registry=registry
        )
        self.uploaded = Counter("aworld_host_uploaded_bytes", "Bytes of files taken.", registry=registry)
        self.requests = Counter(
            "aworld_host_http_requests", "HTTP requests.", ["path", "method", "status"], registry=registry
        )
        self.draining = Gauge("aworld_host_draining", "1 while the host takes no further sessions.", registry=registry)

    def text(self) -> bytes:
        """Everything, in Prometheus' text format."""
        return generate_latest(self.registry)
