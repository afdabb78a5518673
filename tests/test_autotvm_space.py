"""Spaces of configurations: what templates and kernels leave open, and their configurations as records have them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tilewright import te
from tilewright.base.errors import OptionError
from tilewright.search.autotvm.feature import KnobFeatures
from tilewright.search.autotvm.task.entities import (
    AnnotateEntity,
    OtherOptionEntity,
    ReorderEntity,
    SplitEntity,
    VirtualAxis,
)
from tilewright.search.autotvm.task.space import ConfigEntity, ConfigSpace, FallbackConfigEntity, InstantiationError


def small_space() -> ConfigSpace:
    space = ConfigSpace()
    space.define_split("tile_y", space.axis(12), num_outputs=2)
    space.define_knob("unroll", [0, 1])
    space.define_reorder("order", [space.axis(2), space.axis(3)], "all")
    return space


def test_splits_by_each_policy() -> None:
    space = ConfigSpace()
    assert len(space.define_split("factors", space.axis(12), num_outputs=3)) == 3
    space.define_split("power2", 12, policy="power2")
    space.define_split("verbose", 12, policy="verbose", max_factor=4)
    space.define_split("candidate", 12, policy="candidate", candidate=[[-1, 5], [2, 6]])
    space.define_split("filtered", 12, filter=lambda e: e.size[-1] >= 4)
    found = {name: [e.value for e in t.entities] for name, t in space.space_map.items()}
    assert sorted(found["factors"]) == sorted(
        [-1, a, b] for a, b in itertools.product((1, 2, 3, 4, 6, 12), repeat=2) if 12 % (a * b) == 0
    )
    assert found["power2"] == [[-1, 1], [-1, 2], [-1, 4], [-1, 8]]
    assert found["verbose"] == [[-1, 1], [-1, 2], [-1, 3], [-1, 4]]
    assert found["candidate"] == [[-1, 5], [2, 6]]
    assert found["filtered"] == [[-1, 4], [-1, 6], [-1, 12]]


def test_orders_and_marks() -> None:
    space = ConfigSpace()
    axes = [space.axis(n) for n in (2, 3, 4)]
    space.define_reorder("identity", axes, "identity")
    space.define_reorder("all", axes, "all")
    space.define_reorder("interval", axes, "interval_all", interval=(0, 2))
    space.define_reorder("candidate", axes, "candidate", candidate=[[axes[2], axes[0], axes[1]]])
    space.define_reorder("interleave", axes, "interleave", spatial=[[axes[0], axes[1]]], reduce=[[axes[2]]])
    space.define_annotate("vec", axes, "try_vec")
    space.define_annotate("unroll", axes, "try_unroll")
    space.define_annotate("both", axes[:2], "try_unroll_vec")
    found = {name: [e.value for e in t.entities] for name, t in space.space_map.items()}
    assert found["identity"] == [[0, 1, 2]]
    assert len(found["all"]) == 6
    assert found["interval"] == [[0, 1, 2], [1, 0, 2]]
    assert found["candidate"] == [[2, 0, 1]]
    assert found["interleave"] == [[0, 2, 1], [0, 1, 2]]
    assert found["vec"] == [["none"] * 3, ["none", "none", "vec"]]
    assert found["unroll"] == [["none"] * 3, ["none", "none", "unroll"], ["none", "unroll", "unroll"], ["unroll"] * 3]
    assert ["unroll", "vec"] in found["both"]
    assert ["none", "none"] in found["both"]


@pytest.mark.parametrize(
    ("define", "message"),
    [
        (lambda s: s.define_split("a", 8, policy="all"), "no policy 'all' of define_split"),
        (lambda s: s.define_split("a", 8, filter=lambda e: False), "no value is left for axis"),
        (lambda s: s.define_reorder("a", [s.axis(2)], "some"), "no policy 'some' of define_reorder"),
        (lambda s: s.define_annotate("a", [s.axis(2)], "bind_gpu"), "threads of a GPU"),
        (lambda s: s.define_knob("a", []), "no value is left for the knob"),
        (lambda s: s.axis("x"), "an axis of a template is a length"),
        (lambda s: s.axis(te.compute((te.var("n"),), lambda i: i + 1, name="b").op.axis[0]), "has a dynamic size, n"),
    ],
)
def test_what_cannot_be_defined(define: object, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        define(ConfigSpace())  # type: ignore[operator]


def test_every_index_is_one_configuration() -> None:
    space = small_space()
    assert len(space) == space.range_length == 6 * 2 * 2
    seen = {str(space.get(i).to_json_dict()["entity"]) for i in range(len(space))}
    assert len(seen) == len(space)
    for i in range(len(space)):
        assert space.index_of_point(space.point(i)) == i
        assert space.index_of(space.get(i).entity_map) == i
    with pytest.raises(IndexError, match="there is no configuration 24"):
        space.get(24)


def test_filters_leave_configurations_out() -> None:
    space = small_space()
    space.multi_filter(lambda e: e["tile_y"].size[-1] <= 4 or e["unroll"].val == 0)
    assert len(space) == 20
    assert space.range_length == 24
    valid = [i for i in range(24) if space.is_index_valid(i)]
    assert [space.index_at(k) for k in range(len(space))] == valid
    rng = np.random.default_rng(0)
    assert {space.random_index(rng) for _ in range(300)} <= set(valid)
    assert {space.neighbour(valid[3], rng) for _ in range(100)} <= set(valid)
    space.multi_filter(lambda e: False)
    with pytest.raises(OptionError, match="leave no configuration"):
        len(space)


def test_samples_are_different() -> None:
    space = small_space()
    assert sorted(space.sample_ints(100)) == list(range(24))
    assert len(set(space.sample_ints(5, np.random.default_rng(1)))) == 5


def test_crossing_takes_from_both() -> None:
    space, rng = small_space(), np.random.default_rng(0)
    a, b = space.index_of_point((0, 0, 0, 0)), space.index_of_point((0, 5, 1, 1))
    points = {space.point(space.crossed(a, b, rng)) for _ in range(40)}
    assert points == {(0, 0, 1, 1), (0, 0, 0, 1)}


def test_configurations_survive_json() -> None:
    entities = {
        "s": SplitEntity((-1, 4)), "r": ReorderEntity((1, 0)), "a": AnnotateEntity(("none", "vec")),
        "o": OtherOptionEntity("direct")
    }
    made = ConfigEntity(7, "abc", entities)
    said = made.to_json_dict()
    assert said == {
        "index": 7, "code_hash": "abc",
        "entity": [["s", "sp", [-1, 4]], ["r", "re", [1, 0]], ["a", "an", ["none", "vec"]], ["o", "ot", "direct"]],
    }
    again = ConfigEntity.from_json_dict(said)
    assert again.to_json_dict() == said
    assert again["s"] == entities["s"]
    assert again.decisions["s"] == 4
    with pytest.raises(OptionError, match="this is not the configuration of a record"):
        ConfigEntity.from_json_dict({"index": 1, "entity": [["s", "xx", 1]]})


def test_a_configuration_has_no_other_answers() -> None:
    with pytest.raises(InstantiationError, match="no value for 'tile_x'"):
        ConfigEntity(0, None, {"tile_y": SplitEntity((-1, 2))}).define_knob("tile_x", [1])


def test_fallback_takes_the_largest_that_fits() -> None:
    config = FallbackConfigEntity()
    config.define_split("tile", 24, num_outputs=3)
    config.fallback_split("tile", [[-1, 2, 8]])
    assert config["tile"].size == [3, 1, 8]
    config.define_split("tile", 24, num_outputs=3)
    assert config["tile"].size == [3, 1, 8]
    config.fallback_split("tile", [-1, 4, 4])  # TVM's form
    assert config["tile"].size == [2, 3, 4]
    with pytest.raises(OptionError, match="no split of 'tile' fits"):
        config.fallback_split("tile", [[-1, 0, 0]])


def test_virtual_axes_of_stages() -> None:
    a = te.placeholder((4, 8), name="a")
    b = te.compute((4, 8), lambda i, j: a[i, j] + 1.0, name="b")
    assert VirtualAxis(b.op.axis[1]).length == 8
    assert VirtualAxis(VirtualAxis(5, "y")).name == "y"


def test_knob_features_are_those_of_each_configuration() -> None:
    space = small_space()
    features = KnobFeatures(space)
    rows = features(list(range(len(space))))
    assert rows.shape == (24, features.width)
    assert len({tuple(r) for r in rows}) == 24
    k = space.index_of_point((0, 3, 1, 1))
    assert set(np.round(rows[k], 4)) >= {round(float(np.log2(4)), 4), 1.0}
    large = ConfigSpace()
    for n in range(6):
        large.define_split(f"tile_{n}", 64)
    assert KnobFeatures(large)(np.arange(100_000) % large.range_length).shape[0] == 100_000


def test_indices_of_a_filtered_space() -> None:
    space = ConfigSpace()
    space.define_split("y", 8, num_outputs=2)
    space.define_split("x", 8, num_outputs=2)
    space.multi_filter(filter=lambda e: e["x"].size[1] * e["y"].size[1] >= 8)
    valid = [k for k in range(16) if space.is_index_valid(k)]
    assert (len(space), space.subrange_length(0, 8), valid[0]) == (10, 3, 3)
    assert space.get_next_index(0) == 3 and space.get_next_index(3, -1) is None
    assert space.get_next_index(6, 1, end=7) is None
    assert space.point2knob(6) == [2, 1] and space.knob2point([2, 1]) == 6
    assert space.get_rand_index(to_exclude=valid[1:]) == 3 and space.random_walk(15) in valid[:-1]
    with pytest.raises(OptionError, match="the range from 4 to 17 is not inside the space"):
        space.subrange_length(4, 17)
    with pytest.raises(OptionError, match="every index from 0 to 16 is excluded"):
        space.get_rand_index(to_exclude=valid)


def test_a_second_definition_replaces_the_first() -> None:
    space = ConfigSpace()
    space.define_split("y", 8, num_outputs=2, filter=None)
    space.define_split("y", 8, num_outputs=2, filter=lambda e: e.size[1] > 2)
    assert len(space) == 2
