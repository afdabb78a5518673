"""Back ends: targets, their processors, and the generation, linking and loading of machine code."""
