"""Toolchains as environments, one package each. ``import aworld_gym`` registers them with Gymnasium."""
