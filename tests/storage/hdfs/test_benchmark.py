"""The clients that the benchmark of HDFS compares all copy what they are given."""

from benchmarks import hdfs as benchmark
from benchmarks.side_by_side import run


def test_each_client_copies_the_files(hdfs, tmp_path, monkeypatch):
    quick = [name for name in benchmark.clients() if name != "hdfs dfs"]  # a Java for each copy
    monkeypatch.setattr(benchmark, "clients", lambda: quick)
    outcomes = [run(one, rounds=0) for one in benchmark.compared(hdfs, tmp_path, large=1, files=3)]
    large, small = set(quick), set(quick) - {"curl"}  # which copies single files
    assert [set(outcome.seconds) for outcome in outcomes] == [large, large, small, small]
