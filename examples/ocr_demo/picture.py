"""Draws the picture to read, and marks on it what was read. The font is the one that Pillow brings along."""

from __future__ import annotations

from dataclasses import dataclass

from PIL import Image, ImageDraw, ImageFont

WIDTH, HEIGHT = 960, 640


@dataclass(frozen=True)
class Written:
    """One line of text as it is drawn: where its upper left corner is, and how high its letters are, in pixels."""

    text: str
    left: int
    top: int
    size: int
    ink: str = "black"


LINES = (
    Written("Tilewright reads this line", 48, 32, 54),
    Written("Total: 1,234.56 EUR", 48, 130, 42, "#1d3f72"),
    Written("Invoice No. 2024-0317", 520, 140, 30),
    Written("Convolution, attention, pooling", 48, 222, 36, "#7a1f1f"),
    Written("one network finds the words,", 48, 312, 28),
    Written("another one spells them out", 48, 372, 28, "#225522"),
    Written("HELLO WORLD", 560, 332, 48),
    Written("smaller letters are legible too", 48, 470, 24),
    Written("Page 7 of 42", 560, 450, 40, "#444444"),
    Written("The end.", 48, 546, 46),
)


def draw() -> Image.Image:
    """An RGB picture of `WIDTH` x `HEIGHT` pixels with every one of `LINES` on it, on two shades of paper."""
    image = Image.new("RGB", (WIDTH, HEIGHT), "white")
    pen = ImageDraw.Draw(image)
    pen.rectangle((0, 296, WIDTH, HEIGHT), fill="#f3efe2")
    for line in LINES:
        pen.text((line.left, line.top), line.text, fill=line.ink, font=ImageFont.load_default(size=line.size))
    return image


def annotate(image: Image.Image, found: list[tuple[tuple[int, int, int, int], str]]) -> Image.Image:
    """A copy of `image` with a frame around each box and what was read there in small letters above it."""
    marked = image.copy()
    pen = ImageDraw.Draw(marked)
    font = ImageFont.load_default(size=13)
    for (left, top, right, bottom), text in found:
        pen.rectangle((left, top, right, bottom), outline="#d0402b", width=2)
        pen.text((left, max(0, top - 15)), text, fill="#d0402b", font=font)
    return marked
