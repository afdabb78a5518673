"""A standing fuzzer: it draws programs from seeds, compares ours with two references, and shrinks what differs.

    make fuzz MINUTES=10                                  all kinds in turn
    cd tests && python -m fuzz --kind onnx --count 20000  one kind, a number of cases
    cd tests && python -m fuzz --kind onnx --seed 7 --start 1200 --count 1     one case again

docs/fuzzing.md explains the report, how to read a finding, and how to add a rule.
"""
