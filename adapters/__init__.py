"""Thin adapters that let each framework's own trainer train on an aworld-gym env."""
