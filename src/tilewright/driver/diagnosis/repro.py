"""The folder of a diagnosis: a failing program as files that do not need the model.

    model.relay  model.params    the program as text, and its constants
    inputs.params                the inputs
    expected.params              the results of the interpreter
    repro.py                     runs it and shows the difference; exit code 1 while it exists, 0 when it is gone
    report.md  report.json       the diagnosis
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from tilewright.base.errors import ArtifactError
from tilewright.driver.diagnosis.case import Array, Case, load_arrays, save_arrays, with_main
from tilewright.driver.diagnosis.find import Diagnosis
from tilewright.driver.diagnosis.ways import CRASH, HANG, NAMES, Settings
from tilewright.relay.expr import Constant, Expr, Function, Var
from tilewright.relay.parser import parse
from tilewright.relay.printer import astext, constants_of
from tilewright.relay.transform.bind_params import bind_params
from tilewright.relay.transform.infer_type import InferType
from tilewright.relay.visitor import rewrite

MODEL, PARAMS, INPUTS, EXPECTED = "model.relay", "model.params", "inputs.params", "expected.params"
SCRIPT, REPORT, DATA = "repro.py", "report.md", "report.json"
_CONSTANT: Final = "constant_"


def write_repro(found: Diagnosis, settings: Settings, folder: Path, expected: list[Array]) -> list[Path]:
    """Write the folder of a divergence from `expected`, the results of the interpreter. Raises `ArtifactError`."""
    case = found.case
    assert case is not None
    text, constants = lifted(case)
    files: dict[str, bytes] = {
        MODEL: text.encode(), PARAMS: save_arrays(constants),
        INPUTS: save_arrays(dict(zip(case.names, case.values, strict=True))),
        EXPECTED: save_arrays({f"output_{k}": v for k, v in enumerate(expected)}),
        SCRIPT: _script(found, settings).encode(), REPORT: _report(found, settings, text).encode(),
        DATA: (json.dumps({**found.as_dict(), "settings": settings.to_json()}, indent=1) + "\n").encode(),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (folder / name).write_bytes(content)
    except OSError as error:
        raise ArtifactError(
            f"cannot write the repro into '{folder}': {error.strerror or error}; choose another folder with -o",
            code="TW0801"
        ) from None
    return [folder / name for name in files]


def lifted(case: Case) -> tuple[str, dict[str, Array]]:
    """Return the text of a program with its constant tensors as parameters, and their values by name."""
    main = case.main
    new: dict[Expr, Expr] = {}
    values: dict[str, Array] = {}
    for c in constants_of(case.module):
        var = Var(f"{_CONSTANT}{len(new)}", c.known_type())
        new[c] = var
        values[var.name_hint] = c.value
    params = [*main.params, *(v for v in new.values() if isinstance(v, Var))]
    body = rewrite(main.body, lambda e: None, inside=True, memo=dict(new))
    return astext(with_main(case.module, Function(params, body, attrs=main.attrs))), values


def read_case(folder: Path) -> Case:
    """Return the case that `write_repro` wrote."""
    module = InferType()(parse((folder / MODEL).read_text(encoding="utf-8"), MODEL))
    constants = {name: Constant(value) for name, value in load_arrays((folder / PARAMS).read_bytes()).items()}
    given = load_arrays((folder / INPUTS).read_bytes())
    bound = bind_params(module, constants)
    return Case(bound, tuple(given[p.name_hint] for p in bound["main"].params))


def read_expected(folder: Path) -> list[Array]:
    """Return the results of the interpreter from the time when the folder was written."""
    return [*load_arrays((folder / EXPECTED).read_bytes()).values()]


def _script(found: Diagnosis, settings: Settings) -> str:
    way = f"Way({found.way.kind!r}, {found.way.step})" if found.way.step >= 0 else f"Way({found.way.kind!r})"
    what = {
        "whole": "compiled as a whole", "pass": f"after the pass {found.name}", "kernel": "as one kernel"
    }[found.way.kind]
    plugins = "".join(f"run_plugin({p!r})\n" for p in settings.plugins)
    imports = "from tilewright.base.plugins import run_plugin\n" if settings.plugins else ""
    ends = {
        CRASH: "\nThis process ends while it runs.", HANG: "\nThis process does not end by itself."
    }.get("" if found.verdict is None else found.verdict.kind, "")
    return f'''"""{found.summary()}

Exit code 1 while the difference is there, 0 when it is gone.{ends}
"""

import sys
from pathlib import Path

from tilewright.driver.diagnosis.repro import read_case, read_expected
from tilewright.driver.diagnosis.ways import Settings, Way, compared, computed, tolerance_for
{imports}
folder = Path(__file__).parent
settings = Settings.from_json({settings.to_json()!r})
{plugins}case, expected = read_case(folder), read_expected(folder)
print(case.module)
with settings.context():
    answers = computed(case, {way}, settings)  # {what}
for answer in answers:
    for wanted, given in zip(expected, answer):
        print("{NAMES[0]}:", wanted, "{what}:", given, sep="\\n")
    verdict = compared(expected, answer, tolerance_for(case, settings))
    if verdict is not None:
        sys.exit(f"{{verdict.kind}}: {{verdict.text}}")
print("no difference")
'''


def _report(found: Diagnosis, settings: Settings, text: str) -> str:
    told = found.as_dict()
    rows = [
        ("what", f"{told['kind']}: {told['difference']}"), ("stage", told["stage"]),
        ("pass or part of the lowering", told["name"]), ("operator", told["operator"]),
        ("node of the model", told["origin"]),
        ("program", f"{told['nodes']} nodes, of {told['nodes_of_model']} of the model"), ("target", settings.target),
        ("switches", ", ".join(f"{k}={v}" for k, v in settings.config.items())),
        ("passes left out", ", ".join(settings.disabled_pass)),
    ]
    lines = [
        f"# {found.summary()}", "", "| | |", "|---|---|",
        *(f"| {name} | {_cell(value)} |" for name, value in rows if value), ""
    ]
    lines += ["The smallest program that shows it:", "", *_block(text)]
    lines += ["The first value that is wrong:", "", *_block(found.value)] if found.value else []
    lines += (
        [f"The loops, as they are after `{found.name or 'the last pass'}`:", "", *_block(found.loops)] if found.loops
        else []
    )
    return "\n".join([*lines, f"Run it with `python {SCRIPT}`.", ""])


def _cell(value: Any) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ")


def _block(text: str) -> list[str]:
    return ["```text", text.rstrip(), "```", ""]
