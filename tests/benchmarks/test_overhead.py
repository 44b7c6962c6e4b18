"""The benchmark of overheads, in a small form: what it measures is there, and a bar that is missed is named."""

from benchmarks import overhead


def test_noop_is_played_by_all_systems_and_compared_with_the_floor():
    found = overhead.noop(overhead.SYSTEMS, {1: 2, 4: 4}, 1, lambda text: None)
    assert len(found) == 2 * len(overhead.SYSTEMS) and all(
        len(values) == 1 and values[0] > 0 for values in found.values()
    )
    table, _ = overhead.noop_table(found, {1: 2, 4: 4})
    lines = table.splitlines()
    assert len(lines) == 2 + len(overhead.SYSTEMS) and len({line.count("|") for line in lines}) == 1
    floor = next(line for line in lines if overhead.FLOOR in line and "aworld" not in line)
    assert floor.count(", 1.00 |") == 2


def test_a_ratio_above_the_bar_is_named():
    found = {f"{name}|1": [10.0] for name in overhead.SYSTEMS}
    assert overhead.noop_table(found, {1: 1})[1] == []
    found["aworld-gym, one shared session|1"] = [12.0]
    assert overhead.noop_table(found, {1: 1})[1] == [
        "aworld-gym, one shared session: 1.20 times the loop with MCP at 1 at once"
    ]


def test_a_step_costs_more_than_the_raw_call_it_makes():
    found = overhead.step(20, 1)
    (raw,), (stepped,), (facade,) = found.values()
    assert 0 < raw < stepped and raw < facade
    table, _ = overhead.step_table(found)
    assert len(table.splitlines()) == 5
    assert overhead.step_table({"raw": [1.0], "step": [1.4]})[1] == ["step: 0.400 ms above the raw call"]


def test_early_and_late_steps_of_a_long_episode():
    found = overhead.turns(40, 1, 1)
    assert found["early"][0] > 0 and found["late"][0] > 0
    assert overhead.turns_table({"early": [1.0], "late": [1.5]}, 40)[1] == ["late steps cost 1.50 times early ones"]
    assert overhead.turns_table({"early": [1.0], "late": [1.1]}, 40)[1] == []


def test_memory_and_first_resets_are_measured_in_processes_of_their_own():
    found = overhead.memory(["noop, shared session"], 2, 1)
    assert 0 <= found["noop, shared session"][0] < 20
    assert overhead.memory_table({"x": [1.5]}, 2)[1] == ["x: 1.50 MB"]
    first = overhead.first(1)
    assert first["cold_cpu_ms"][0] > first["warm_cpu_ms"][0] > 0
    table, _ = overhead.first_table(first)
    assert len(table.splitlines()) == 2 + 4
