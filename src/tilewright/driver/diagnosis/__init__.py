"""Why a compiled model is wrong: the first diverging tensor, the pass or stage to blame, and a small program that
shows it.

    with Bench(Settings(target="llvm")) as bench:
        found = find(case, bench)          a `Diagnosis`: stage, name, operator, and the shrunk case
        write_repro(found, bench.settings, folder)

`tilewright diagnose MODEL` is the same on the command line ([the page](docs/diagnose.md)).
"""
