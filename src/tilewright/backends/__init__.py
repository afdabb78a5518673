"""Back ends: targets, the processors that they name, and the generation, linking and loading of machine code."""
