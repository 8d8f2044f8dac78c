"""A model is left alone until a client sends input: loading runs none of its signatures.

The model `kept` has a training step, a counter, a seeded generator and a loop that does not end on zeros: loading it
would change its answers, or not end, if the server ran them. Each signature is called by one test only.
"""

from pathlib import Path
from typing import Any

import numpy as np

Server = Any  # a ServerProcess of conftest.py


def call(server: Server, signature: str, *values: float) -> Any:
    answer = server.predict("kept", {"signature_name": signature, "inputs": values})
    assert answer.status == 200, answer.body
    return answer.json["outputs"]


def test_a_weight_with_a_training_step_is_as_it_was_saved_until_a_client_trains(server: Server) -> None:
    assert call(server, "serving_default", 0.0, 1.0) == [8.0, 8.0]
    assert call(server, "train", 3.0) == 25.0
    assert call(server, "serving_default", 0.0) == [7.0]


def test_a_counter_counts_the_requests_only(server: Server) -> None:
    assert [call(server, "tick", 0.0) for _ in range(3)] == [[1], [2], [3]]


def test_a_seeded_generator_gives_clients_its_first_numbers(server: Server, models: Path) -> None:
    draws = np.load(models / "kept.npz")["draws"]
    drawn = np.array([call(server, "draw", 0.0) for _ in draws], np.float32)
    np.testing.assert_array_equal(drawn, draws)


def test_a_loop_that_does_not_end_on_zeros_ends_on_input(server: Server) -> None:
    assert call(server, "grow", 3.0) == [192.0]


def test_the_log_names_the_thread_that_the_graph_allows(server: Server) -> None:
    for signature, placement in (
        ("serving_default", "runs=on_loop pooled=false"),
        ("train", "runs=on_thread pooled=true"),
        ("grow", "runs=on_thread pooled=false"),
    ):
        assert server.line(f"signature.ready model=kept version=1 signature={signature} ").endswith(placement)


def test_the_times_of_requests_decide_what_the_graph_leaves_open(server: Server) -> None:
    for _ in range(10):  # five runs of each way, of feeds of one size
        assert server.predict("spin", {"inputs": 1}).status == 200
    server.line("signature.placed model=spin version=1 signature=serving_default runs=on_thread pooled=")


def test_a_page_shows_how_the_processors_are_used(server: Server) -> None:
    call(server, "grow", 5.0)
    answer = server.get("/monitoring/scheduling")
    assert answer.status == 200
    shown = {(each["model"], each["signature"]): each for each in answer.json["signatures"]}
    grow = shown["kept", "grow"]
    assert (grow["runs_on"], grow["overloaded"], grow["refused"]) == ("threads", False, 0)
    (runs,) = grow["runs"]
    assert runs["rows"] == 1
    assert runs["microseconds_a_row"]["1"] > 0
    answered = grow["milliseconds_of_last_answers"]
    assert answered["answers"] >= 1
    assert 0 < answered["p50"] <= answered["p99"] < 60_000
    assert shown["half_plus", "serving_default"]["runs_on"] == "the event loop"
    assert shown["kept", "train"]["second_session"] == "none"  # a second copy of a variable would not be trained
