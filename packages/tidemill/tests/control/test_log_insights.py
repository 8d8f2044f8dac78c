"""The query language of CloudWatch Logs Insights, over events given as fields."""

from collections.abc import Iterator

import pytest

from tidemill.control.logs.insights.commands import InsightsQuery
from tidemill.control.logs.insights.scanner import MalformedQuery
from tidemill.control.logs.insights.values import EventRow, Instant

START_MS = 1_700_000_100_000  # 2023-11-14 22:15:00
MESSAGES = (
    '{"job": "a", "loss": 0.5, "step": 1, "host": {"name": "one", "ports": [80, 443]}, "ok": true}',
    '{"job": "a", "loss": 0.25, "step": 2, "host": {"name": "two"}, "code": "404"}',
    "ERROR [loader] took 120 ms: no such file",
    '{"job": "b", "loss": 1.5, "step": 1, "odd-name": "x"}',
    "WARN [model] took 7 ms: slow",
    '{"job": "b", "step": 2, "note": null}',
)


def events() -> Iterator[EventRow]:
    """Yield the messages, two minutes apart."""
    for number, message in enumerate(MESSAGES):
        yield EventRow(
            {
                "@timestamp": Instant(START_MS + number * 120_000),
                "@message": message,
                "@logStream": f"stream-{number % 2}",
                "@log": "000000000000:/team",
            }
        )


def run(query: str, *, limit: int = 10_000) -> list[dict[str, str]]:
    return [dict(row) for row in InsightsQuery.parse(query, limit=limit).run(events())]


def values(query: str, name: str) -> list[str | None]:
    return [row.get(name) for row in run(query)]


def kept(condition: str) -> list[int]:
    """Return the numbers of the messages that a filter keeps."""
    found = values(f"filter {condition} | sort @timestamp", "@message")
    return [MESSAGES.index(str(message)) for message in found]


def test_without_a_command_the_newest_messages_come_first_with_their_time():
    assert run("")[0] == {"@timestamp": "2023-11-14 22:25:00.000", "@message": MESSAGES[5]}
    assert values("", "@message") == list(reversed(MESSAGES))
    assert [row["@message"] for row in run("", limit=2)] == [MESSAGES[5], MESSAGES[4]]
    assert values("fields @message | limit 3 | filter @message like 'job'", "@message") == [MESSAGES[5], MESSAGES[3]]


def test_fields_are_discovered_in_json_and_missing_ones_are_left_out():
    rows = run("fields job, host.name, host.ports.1, host, ok, note, nothing | sort @timestamp | limit 1")
    assert rows == [
        {
            "job": "a",
            "host.name": "one",
            "host.ports.1": "443",
            "host": '{"name": "one", "ports": [80, 443]}',
            "ok": "true",
        }
    ]
    assert values("fields `odd-name` as odd | filter ispresent(`odd-name`)", "odd") == ["x"]
    assert run("fields @logStream, @log | limit 1") == [{"@logStream": "stream-1", "@log": "000000000000:/team"}]


@pytest.mark.parametrize(
    ("condition", "numbers"),
    [
        ("loss > 0.3", [0, 3]),
        ("loss >= 0.25 and loss < 1", [0, 1]),
        ("loss = 0.5 or step = 2", [0, 1, 5]),
        ("job = 'a' or job = 'b' and step = 1", [0, 1, 3]),
        ("(job = 'a' or job = 'b') and step = 1", [0, 3]),
        ("not job = 'a'", [2, 3, 4, 5]),
        ("job != 'a'", [3, 5]),  # a comparison with a missing field is false
        ("code = 404", [1]),  # text that is a number is compared as one
        ("code in [200, 404]", [1]),
        ("job in ('b', 'c')", [3, 5]),
        ("job not in ['b'] and ispresent(job)", [0, 1]),
        ("@message like 'took'", [2, 4]),
        ("@message like /(?i)error|warn/", [2, 4]),
        ("@message =~ /took \\d{3} ms/", [2]),
        ("@message not like /took/", [0, 1, 3, 5]),
        ("@message like /\\[model\\]/", [4]),
        ("@message like '[model]'", [4]),
        ("@logStream = 'stream-0'", [0, 2, 4]),
        ("@timestamp > 1700000580000", [5]),
        ("strcontains(@message, 'no such') # a comment | filter nothing", [2]),
        ("strlen(job) = 1 and step * 2 + 1 = 5", [1, 5]),
        ("step % 2 = 1 and -loss < -1", [3]),
        ("2 ^ step = 4 and loss / 0 = 1", []),
        ("isblank(job) and isempty(nothing)", [2, 4]),
        ("upper(job) = 'A' AND NOT host.name = 'two'", [0]),
    ],
)
def test_a_filter_keeps_the_events_that_match(condition, numbers):
    assert kept(condition) == numbers


def test_events_are_sorted_by_several_values_and_missing_ones_are_least():
    found = run("fields job, step | sort job desc, step")
    assert [(row.get("job"), row.get("step")) for row in found] == [
        *[("b", "1"), ("b", "2"), ("a", "1"), ("a", "2")],
        *[(None, None), (None, None)],
    ]
    assert values("sort loss desc | limit 2 | fields loss", "loss") == ["1.5", "0.5"]
    assert values("filter ispresent(loss) | sort loss | fields loss", "loss") == ["0.25", "0.5", "1.5"]


def test_events_are_aggregated_by_values_and_periods():
    assert run("stats count(*), count(loss) as losses, avg(loss), min(loss), max(loss), sum(step)") == [
        {
            "count(*)": "6",
            "losses": "3",
            "avg(loss)": "0.75",
            "min(loss)": "0.25",
            "max(loss)": "1.5",
            "sum(step)": "6",
        }
    ]
    assert run("filter ispresent(job) | stats max(step) - min(step) as steps, count() by job, bin(5m) as period") == [
        {"job": "a", "period": "2023-11-14 22:15:00.000", "steps": "1", "count()": "2"},
        {"job": "b", "period": "2023-11-14 22:20:00.000", "steps": "0", "count()": "1"},
        {"job": "b", "period": "2023-11-14 22:25:00.000", "steps": "0", "count()": "1"},
    ]
    assert run("stats count(*) as n by bin(5m) | sort n desc | limit 1 | display n") == [{"n": "3"}]
    assert run("stats count(*) as n by job | filter n > 1 | stats sum(n) as total, count_distinct(job)") == [
        {"total": "6", "count_distinct(job)": "2"}
    ]
    others = "stats pct(step, 50), median(loss), stddev(step), earliest(step), latest(job), avg(nothing)"
    assert run(others) == [
        {
            "pct(step, 50)": "1",
            "median(loss)": "0.5",
            "stddev(step)": "0.5",
            "earliest(step)": "1",
            "latest(job)": "b",
        }
    ]


def test_fields_are_parsed_by_a_glob_and_by_a_regular_expression():
    assert run(
        "parse '* [*] took * ms: *' as level, part, ms, why | filter ms > 10 | display level, part, ms, why"
    ) == [{"level": "ERROR", "part": "loader", "ms": "120", "why": "no such file"}]
    found = run(
        "parse @message /\\[(?<part>\\w+)\\] took (?<ms>\\d+)/ | filter ispresent(part) | stats sum(ms) by part"
    )
    assert found == [{"part": "loader", "sum(ms)": "120"}, {"part": "model", "sum(ms)": "7"}]
    shown = run("fields @timestamp | parse host.name 'o*' as rest | filter rest = 'ne'")
    assert shown == [{"@timestamp": "2023-11-14 22:15:00.000", "rest": "ne"}]


def test_values_are_computed_and_shown_under_their_name():
    first = "filter step = 2 | sort job | limit 1 | "
    assert run(f"{first} fields concat(job, '-', step) as id, loss * 4, floor(loss), substr(job, 0, 1)") == [
        {"id": "a-2", "loss * 4": "1", "floor(loss)": "0", "substr(job, 0, 1)": "a"}
    ]
    assert values("filter job = 'b' | fields coalesce(loss, 'none') as it | sort step", "it") == ["1.5", "none"]


@pytest.mark.parametrize(
    ("query", "named", "at"),
    [
        ("dedup job", "dedup", (0, 5)),
        ("SOURCE logGroups()", "SOURCE", (0, 6)),
        ("filter a = 1 | unmask a", "unmask", (15, 21)),
        ("fields jsonParse(@message)", "jsonParse", (7, 16)),
        ("filter avg(a) > 1", "only stats", (7, 10)),
        ("stats avg(sum(a))", "inside another", (10, 13)),
        ("stats a", "count(*)", (7, 7)),
        ("stats count(*) by bin(2w)", "ms, s, m, h and d", (22, 24)),
        ("filter a like /(/", "regular expression", (14, 17)),
        ("filter a =", "the end", (10, 10)),
        ("filter a not b", "like or in", (13, 14)),
        ("fields a b", "expected |", (9, 10)),
        ("fields a | ", "expected a command", (11, 11)),
        ("fields a ~ b", "'~'", (9, 10)),
        ("limit 0", "at least 1", (6, 7)),
        ("limit 99999999999999999999", "at least 1", (6, 26)),
        ("limit " + "9" * 5000, "at least 1", (6, 5006)),
        ("stats count(*) by bin(" + "9" * 5000 + "m)", "ms, s, m, h and d", (22, 5023)),
        ("filter a like /(?a)(?u)x/", "regular expression", (14, 25)),
        ("filter a like /x{" + "9" * 5000 + "}/", "regular expression", (14, 5019)),
        ("parse '* *' as one", "2 * for 1 names", (18, 18)),
        ("parse /a(b)/", "named group", (12, 12)),
        ("fields strlen()", "0 arguments", (7, 13)),
        ("filter " + "(" * 4000, "nested too deeply", (0, 4007)),
    ],
)
def test_what_is_wrong_or_not_offered_is_named_with_its_place(query, named, at):
    with pytest.raises(MalformedQuery) as refused:
        InsightsQuery.parse(query, limit=10)
    assert named in str(refused.value)
    assert (refused.value.begin, refused.value.end) == at


def test_filters_count_what_they_keep_before_an_aggregation():
    query = InsightsQuery.parse("filter ispresent(job) | stats count(*) by job | limit 1", limit=10)
    assert len(list(query.run(events()))) == 1
    assert query.matched.rows == 4


def test_numbers_that_no_float_can_hold_are_missing_and_others_count():
    large = "9" * 5000
    written = ("NaN", "3", "-Infinity", "1e999", large, "9" * 400, "2", "1e308", "1.5e308", "9" * 299)

    def answer(query: str) -> list[dict[str, str]]:
        rows = [
            EventRow({"@timestamp": Instant(at), "@message": f'{{"at": {at}, "loss": {text}}}'})
            for at, text in enumerate(written)
        ]
        return [dict(row) for row in InsightsQuery.parse(query, limit=100).run(rows)]

    assert answer(
        "filter loss < 10 | stats max(loss) as most, min(loss) as least, avg(loss) as mean, count(loss) as n"
    ) == [{"most": "3", "least": "2", "mean": "2.5", "n": "2"}]
    assert [row["at"] for row in answer("filter ispresent(loss) | sort loss desc | fields at")] == [
        "8",
        "7",
        "9",
        "1",
        "6",
    ]
    # A sum may be too large, too, and every function of a large number has a result or none.
    assert answer("stats sum(loss) as total, stddev(loss) as spread, max(loss) as most") == [{"most": "1.5e+308"}]
    functions = "loss * loss, loss ^ 400, ceil(loss), log(loss), substr('abc', loss), substr('abc', 0, loss), abs(loss)"
    assert len(answer(f"fields {functions}, {large} + 1, substr('abc', {large})")) == len(written)
    assert answer("filter at = 8 | fields loss * loss as square, loss + loss as double, at") == [{"at": "8"}]
