"""Targets: their text and JSON, kinds, tags, features, boards, and the devices of a program."""
