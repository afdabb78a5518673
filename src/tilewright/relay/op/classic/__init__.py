"""Operators of strings, dictionaries and classic machine learning, such as ensembles of trees."""

from __future__ import annotations

from tilewright.relay.op.classic import coupling, dictionaries, ensembles, native_texts, text

__all__ = ["coupling", "dictionaries", "ensembles", "native_texts", "text"]
