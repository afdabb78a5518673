"""Plugin of pytest: values for the arguments `target` and `dev`, and for fixtures of `parameters`."""

from __future__ import annotations

from typing import Any

import pytest

from tilewright.backends.target import Target
from tilewright.base.nd import Device, device
from tilewright.compat.testing import device_enabled, enabled_targets
from tilewright.compat.testing.pytest_names import EXCLUDED, GROUP, TARGETS

__all__ = ["dev", "pytest_generate_tests"]


@pytest.fixture
def dev(target: Any) -> Device:
    """The device of the target of a test."""
    return device(str(target).split(maxsplit=1)[0])


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize a test function by its targets, and by the groups of its parameters."""
    own = [m.args[0] for m in metafunc.definition.iter_markers("parametrize")]
    if "target" in metafunc.fixturenames and not any("target" in str(names) for names in own):
        metafunc.parametrize("target", list(map(_param, *zip(*_targets(metafunc.function), strict=True))))
    groups: dict[int, list[tuple[str, list[Any], Any]]] = {}
    for name, definitions in metafunc._arg2fixturedefs.items():
        number, values, ids, _ = getattr(definitions[-1].func, GROUP, (-1, [], None, 0))
        if number >= 0 and name in metafunc.fixturenames:
            groups.setdefault(number, []).append((name, values, ids))
    for members in groups.values():
        names = [name for name, _, _ in members]
        if len(members) == 1:  # a name, so that pytest does not unpack values that are lists
            metafunc.parametrize(names[0], members[0][1], ids=members[0][2], indirect=True)
        else:
            rows = list(zip(*(values for _, values, _ in members), strict=True))
            metafunc.parametrize(names, rows, ids=members[0][2], indirect=True)


def _targets(function: Any) -> list[tuple[Any, Any]]:
    """Return the targets of a test function, each with its mark or None."""
    excluded = getattr(function, EXCLUDED, {})
    wanted = getattr(function, TARGETS, None) or [t for t, _ in enabled_targets()]
    found = [(t, excluded.get(_kind(t))) for t in wanted if excluded.get(_kind(t), True) is not None]
    return found or [("llvm", pytest.mark.skip(reason="no target"))]


def _param(target: Any, mark: Any) -> Any:
    marks = [] if mark is None else [mark]
    if not device_enabled(target):
        marks.append(pytest.mark.skip(reason=f"{target} is not enabled"))
    return pytest.param(target, marks=marks, id=str(target))


def _kind(target: Any) -> str:
    return target.kind.name if isinstance(target, Target) else str(target).split(maxsplit=1)[0]
