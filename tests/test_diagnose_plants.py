"""Mistakes that are planted in the compiler: a diagnosis names the operator, and the pass or the stage of the
lowering."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import daily
from planted_bugs import PLANTS, Plant
from planted_networks import NETWORKS, network
from tilewright.driver.diagnosis.bench import Bench
from tilewright.driver.diagnosis.find import Diagnosis, find
from tilewright.driver.diagnosis.repro import read_case, read_expected, write_repro
from tilewright.driver.diagnosis.ways import Settings
from tilewright.runtime.worker import Worker

QUICK = (
    "wrong_fold", "swapped_operands", "dropped_scale", "bad_layout_transform", "wrong_fused_epilogue", "a_pass_raises",
    "off_by_one_in_take", "padding_is_counted",
    "wrong_vector_tail", "wrong_order_of_packed_weights", "maximum_is_minimum", "memory_given_away_too_early",
)
ENOUGH = 0.9
"""The share of mistakes that are to be found."""
MOST_NODES = 10
HANGS = 1.5
"""Seconds after which what never ends is taken for that; for the others there is time enough."""


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    """One process for all; it is another one after each crash."""
    found = Worker()
    yield found
    found.close()


def diagnosed(plant: Plant, worker: Worker, folder: Path) -> tuple[Diagnosis, Settings]:
    """What is found for a mistake, and the settings that plant it."""
    file = folder / f"{plant.name}.py"
    file.write_text(
        f"import sys\nsys.path.insert(0, {str(Path(__file__).parent)!r})\nimport "
        f"planted_bugs\nplanted_bugs.plant({plant.name!r})\n"
    )
    settings = Settings(plugins=(str(file),))
    with Bench(settings, HANGS if plant.kind == "hang" else 120.0, worker) as bench:
        found = find(network(plant.network), bench)
        if found.case is not None and plant.kind == "values":
            write_repro(found, settings, folder / plant.name, bench.arrays("expected", found.case))
    return found, settings


def wrong(plant: Plant, found: Diagnosis) -> str:
    """What is not as it should be; empty where all is."""
    if not found.found or found.verdict is None or found.case is None:
        return f"{plant.name}: nothing was found"
    kinds = ("values", "non-finite") if plant.kind == "values" else (plant.kind,)
    named = (
        found.stage, found.name
    ) == (plant.stage, plant.at) and found.operator in plant.operators and found.verdict.kind in kinds
    return (
        "" if named and found.case.nodes <= MOST_NODES else f"{plant.name}: {found.summary()}, {found.case.nodes} nodes"
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK)
def test_a_mistake_is_named(name: str, worker: Worker, tmp_path: Path) -> None:
    plant = PLANTS[name]
    found, _ = diagnosed(plant, worker, tmp_path)
    assert wrong(plant, found) == ""
    if plant.kind == "values":
        assert found.case is not None
        read = read_case(tmp_path / name)
        assert read.nodes == found.case.nodes
        assert [v.shape for v in read_expected(tmp_path / name)] == [v.shape for v in read.reference()]


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_without_a_mistake_nothing_is_found(name: str, worker: Worker, tmp_path: Path) -> None:
    none = tmp_path / f"no_mistake_{name}.py"
    none.write_text(
        f"import sys\nsys.path.insert(0, {str(Path(__file__).parent)!r})\nimport planted_bugs\nplanted_bugs.plant('')\n"
    )
    with Bench(Settings(plugins=(str(none),)), 120.0, worker) as bench:
        found = find(network(name), bench, thorough=True)
    assert (found.found, found.case) == (False, None)


@pytest.mark.slow
def test_nine_of_ten_mistakes_are_named(worker: Worker, tmp_path: Path) -> None:
    assert len(PLANTS) >= 40
    plants = daily.sample(list(PLANTS.values()), 20, "plants")
    failed = [w for plant in plants if (w := wrong(plant, diagnosed(plant, worker, tmp_path)[0]))]
    assert len(failed) <= round((1 - ENOUGH) * len(plants)), "\n".join(failed)
