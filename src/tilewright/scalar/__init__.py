"""Scalar expressions, their intrinsics, and integer arithmetic (`arith`)."""
