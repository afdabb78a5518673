"""Kernels of strings, decision trees and class probabilities."""
