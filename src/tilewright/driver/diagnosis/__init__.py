"""Diagnosis of wrong results: the first diverging tensor, the faulty pass or stage, and a small failing program.

    with Bench(Settings(target="llvm")) as bench:
        found = find(case, bench)          a `Diagnosis`: stage, name, operator, and the shrunk case
        write_repro(found, bench.settings, folder)

`tilewright diagnose MODEL` is the same on the command line ([the page](docs/diagnose.md)).
"""
