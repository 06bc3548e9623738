"""The clients that the benchmark of HDFS compares all copy what they are given."""

from benchmarks import hdfs as benchmark
from benchmarks.side_by_side import run


def test_each_client_copies_the_files(hdfs, tmp_path, monkeypatch):
    quick = [name for name in benchmark.clients() if name != "hdfs dfs"]  # a Java for each copy
    monkeypatch.setattr(benchmark, "clients", lambda: quick)
    *large, small, _ = benchmark.compared(hdfs, tmp_path, large=1, files=3)
    assert [set(run(one, rounds=0).seconds) for one in large] == [set(quick)] * 2  # up and down
    assert set(small.contenders) == set(quick) - {"curl"}  # which copies single files
    small.contenders["ours"]()
