"""Plugin of pytest: values for the arguments `target` and `dev`, and for fixtures of `parameters`."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tilewright.backends.targets.target import Target
from tilewright.base.nd import Device, device
from tilewright.compat.testing import device_enabled, enabled_targets
from tilewright.compat.testing.pytest_names import (
    EXCLUDED,
    GROUP,
    TARGETS,
    requires_cuda,
    requires_hexagon,
    requires_llvm,
    requires_metal,
    requires_nvptx,
    requires_opencl,
    requires_rocm,
    requires_vulkan,
)

__all__ = ["dev", "pytest_collection_modifyitems", "pytest_generate_tests"]

_REQUIREMENTS: Final = {
    "llvm": requires_llvm, "cuda": requires_cuda, "nvptx": requires_nvptx, "rocm": requires_rocm,
    "opencl": requires_opencl, "metal": requires_metal, "vulkan": requires_vulkan, "hexagon": requires_hexagon,
}
"""Kind of a target -> the decorator of tests that need its device."""


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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Add to each test with a parameter `target` the marks of tests that need the device of this target."""
    for item in items:
        target = item.callspec.params.get("target") if isinstance(item, pytest.Function) and hasattr(
            item, "callspec") else None
        if isinstance(target, (str, Target)):
            for mark in _target_to_requirement(target):
                item.add_marker(mark)


def _target_to_requirement(target: str | Target) -> list[pytest.MarkDecorator]:
    """Return the marks of tests that need the device of a target, under TVM's name."""
    decorator = _REQUIREMENTS.get(_kind(target))
    return [] if decorator is None else list(decorator.marks())


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
