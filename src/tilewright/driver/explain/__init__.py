"""`tilewright explain MODEL -o report.html`: one page that shows how a model was compiled, and how it runs.

    recording.py   what each pass changed            kernels.py      Relay, loops, LLVM and assembly, linked
    difference.py  two texts of Relay side by side   measurement.py  seconds, operations and bytes of each step
    graphs.py      graphs to draw                    memory.py       placement and live ranges in the workspace
    content.py     all of that as one value          page.py         the page: texts, scripts and styles in one file
"""
