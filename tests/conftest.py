"""Set-up of every test run."""

import signal


def pytest_configure(config):
    """Time-outs work, and interrupts for the tests that send one, in a run started in the background of a shell.

    Such a run inherits SIGINT ignored, and so would its children; a handler of Python's is reset in them.
    """
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # A mask is inherited too, and a test's time-out is an alarm.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM, signal.SIGINT, signal.SIGTERM, signal.SIGCHLD})
