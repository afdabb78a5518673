"""Schedules of kernels: one file for each kind of computation."""
