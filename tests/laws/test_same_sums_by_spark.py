"""Spark's workers change no bit of anything either. With the `spark` extra and Java; else by half.

Without them, what stands in for Spark runs tasks here, in the reverse order, from bytes.
"""

import os
import pickle
import shutil
import signal
import stat
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from test_same_sums_by_workers import learned, rows, small_partitions, sums_of

import fedopl
from fedopl.base.errors import OptionError, StorageError
from fedopl.client.client_file import read_client, shared_engine
from fedopl.client.cluster import spark_engine
from fedopl.client.cluster.spark_engine import SparkEngine, SparkMaster, check_java
from fedopl.client.table.logged_data import with_engine
from watching import sockets_of

__all__ = ["rows", "small_partitions"]  # fixtures

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
LONG = 300  # seconds for a busy machine to start workers


def installed(monkeypatch, *, here=True):
    monkeypatch.setattr("fedopl.client.cluster.workers.find_spec", lambda _: here or None)


# --- without Spark --------------------------------------------------------------------------------


class Standing:
    """What stands in for a Spark session of three tasks at a time."""

    def __init__(self, *, executors=2, error=None):
        self.groups, self.cancelled, self.closed, self.error = [], [], False, error
        self.session = self
        infos = [None] * executors
        tracker = SimpleNamespace(getExecutorInfos=lambda: infos)
        java = SimpleNamespace(isLocal=lambda: False, statusTracker=lambda: tracker)
        java.isStopped = lambda: self.closed
        self.sparkContext = SimpleNamespace(
            defaultParallelism=3,
            broadcast=lambda value: SimpleNamespace(value=as_sent(value), destroy=lambda: None),
            setJobGroup=lambda group, *_, **__: self.groups.append(group),
            cancelJobGroup=self.cancelled.append,
            _jsc=SimpleNamespace(sc=lambda: java),
        )

    def close(self):
        self.closed = True

    def range(self, start, stop, step, n_tasks):
        assert (step, n_tasks) == (1, stop - start)
        if self.error:
            raise self.error
        return SimpleNamespace(
            mapInArrow=lambda answering, _: SimpleNamespace(
                collect=lambda: [
                    SimpleNamespace(**row)
                    for number in reversed(range(start, stop))
                    for found in answering([pa.record_batch({"id": [number]})])
                    for row in found.to_pylist()
                ]
            )
        )


def as_sent(value):
    return pickle.loads(pickle.dumps(value))


@pytest.fixture
def standing(monkeypatch):
    installed(monkeypatch)

    def engine(**more):
        found = SparkEngine("spark://lake:7077", wait=0.05)
        found._opened = Standing(**more)
        return found

    return engine


def test_jobs_in_any_order_give_the_same_bits(standing, rows):
    data, engine = rows(), standing()
    assert learned(with_engine(data, engine)) == learned(data)
    assert len(set(engine._opened.groups)) >= 4
    assert not engine._opened.cancelled


def test_an_error_of_a_task_is_raised_as_it_is(standing):
    def failing(_):
        raise StorageError("rows: cannot be written: no space")

    engine = standing()
    with pytest.raises(StorageError, match="no space"):
        list(engine.map(failing, [[]] * 9))
    assert engine._opened.cancelled == engine._opened.groups[:1]


def test_every_task_compares_versions_and_files(standing, tmp_path, monkeypatch):
    engine, file = standing(), tmp_path / "contexts"
    file.write_bytes(b"12345")
    engine.check(file, 5)
    with pytest.raises(StorageError, match=r"contexts: has 6 bytes here, .* sees 5 bytes"):
        engine.check(file, 6)
    with pytest.raises(StorageError, match="cannot read it"):
        engine.check(tmp_path / "none", 6)
    later = iter([{"numpy": "2.1", "fedopl": "1"}, *[{"numpy": "2.4", "fedopl": "1"}] * 9])
    monkeypatch.setattr(spark_engine, "versions", lambda: next(later))
    with pytest.raises(OptionError, match=r"has other versions.*: numpy 2.4, here 2.1\. Install"):
        engine.connect()
    assert engine._opened.closed
    with pytest.raises(StorageError, match="connection was lost"):
        engine.check(file, 5)


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("Job aborted: Python worker exited unexpectedly (crashed)", StorageError, "same rows"),
        ("ExecutorLostFailure (executor 1 exited", StorageError, "several workers died"),
        ("Cannot call methods on a stopped SparkContext.", StorageError, "connection was lost"),
        ("[Errno 111] Connection refused", StorageError, "connection was lost"),
        ("bigger than spark.driver.maxResultSize", StorageError, "set it higher"),
        ("ModuleNotFoundError: No module named 'fedopl'", OptionError, "install fedopl there"),
        ("[PYTHON_VERSION_MISMATCH] Python", OptionError, "another version of Python"),
        ("An error occurred while x\n: a.b.C: other\n\tat", StorageError, r"task \(a.b.C: other\)"),
    ],
)
def test_what_spark_says_is_said_in_words_of_ours(standing, text, kind, message):
    with pytest.raises(kind, match=message):
        standing(error=RuntimeError(text)).connect()


def test_nobody_who_works_is_said_in_bounded_time(standing):
    engine = standing(executors=1)
    engine._job = lambda *_: time.sleep(0.3)
    with pytest.raises(OptionError, match=r"spark://lake:7077 has no worker after 0.05 seconds"):
        list(engine.map(len, [[]]))
    engine._worked = True
    with pytest.raises(StorageError, match="all workers are gone"):
        list(engine.map(len, [[]]))


def test_masters_are_named_as_spark_names_them(monkeypatch):
    installed(monkeypatch)
    assert SparkEngine(workers=3)._master.url == "local[3,4]"  # a task is tried four times
    assert SparkEngine()._master.url == "local[*,4]"
    assert SparkEngine("local")._master.url == "local[1,4]"
    assert SparkEngine("local[2]")._master.url == "local[2,4]"
    assert SparkEngine("local[2,1]")._master.url == "local[2,1]"
    assert SparkEngine("yarn")._master.url == "yarn"
    for wrong in ("lake:7077", "spark://lake", "local[two]", "sc://lake:15002", "http://x"):
        with pytest.raises(OptionError, match="is no address of a Spark master; expected one like"):
            SparkEngine(wrong)
    with pytest.raises(OptionError, match="leave out the address"):
        SparkEngine("yarn", workers=2)


def test_what_is_missing_is_said_before_anything_starts(monkeypatch, tmp_path):
    installed(monkeypatch, here=False)
    with pytest.raises(OptionError, match=r"pip install 'fedopl\[spark\]'"):
        SparkEngine()
    installed(monkeypatch)
    with pytest.raises(OptionError, match=r"no Spark master could be reached at spark://127.* 0.5"):
        SparkMaster("spark://127.0.0.1:9", None).check_reached(0.5)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(OptionError, match=r"JAVA_HOME is .*, where there is none; install Java 17"):
        check_java()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(OptionError, match="no java is found"):
        check_java()


# --- with Spark -----------------------------------------------------------------------------------

with_spark = pytest.mark.skipif(shutil.which("java") is None, reason="Spark runs on Java")


@pytest.fixture(scope="module")
def two_workers():
    pytest.importorskip("pyspark")
    engine = fedopl.SparkEngine("local[2]", wait=LONG)
    engine.connect()
    yield engine
    engine.close()
    assert not Path(engine._opened.folder.name).exists()


def killed_once(engine, mark, whom):
    """The engine, one of whose workers is killed while it has the second partition."""

    def mapped(task, partitions):
        def killing(partition):
            found = task(partition)
            if partition[0].start and not mark.exists():
                mark.touch()
                os.kill(whom(), signal.SIGKILL)
                time.sleep(20)  # until all that belongs to it has ended
            return found

        return engine.map(killing, partitions)

    return SimpleNamespace(check=engine.check, map=mapped)


@with_spark
def test_a_single_worker_changes_no_bit(rows):
    pytest.importorskip("pyspark")
    data, engine = rows(), fedopl.SparkEngine(workers=1, wait=LONG)
    found = sums_of(with_engine(data, engine))
    java = engine._opened.session.sparkContext._gateway.proc
    engine.close()
    assert java.poll() is not None
    assert found == sums_of(data)


@with_spark
def test_after_a_machine_of_a_cluster_died_every_bit_is_the_same(rows, tmp_path, monkeypatch):
    pytest.importorskip("pyspark")
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    data, mark = rows(), tmp_path / "was killed"
    engine = fedopl.SparkEngine("local-cluster[2,1,1024]", wait=LONG)

    def executor():  # of which the parent of this process is a child
        return int(Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1])

    killing = killed_once(engine, mark, executor)
    try:
        assert sums_of(with_engine(data, killing)) == sums_of(data)
        assert mark.exists()
        engine._opened.session.stop()
        with pytest.raises(StorageError, match="connection was lost"):
            list(engine.map(len, [[]]))
    finally:
        engine.close()


@with_spark
def test_two_workers_of_spark_change_no_bit(two_workers, rows):
    data = rows()
    assert learned(with_engine(data, two_workers)) == learned(data)


@with_spark
def test_after_a_worker_was_killed_every_bit_is_the_same(two_workers, rows, tmp_path):
    data, mark = rows(), tmp_path / "was killed"
    killing = killed_once(two_workers, mark, os.getpid)
    assert sums_of(with_engine(data, killing)) == sums_of(data)
    assert mark.exists()
    with pytest.raises(StorageError, match=r"local\[2\]: several workers died of the same rows"):
        list(two_workers.map(lambda _: os.kill(os.getpid(), signal.SIGKILL), [[]]))
    assert list(two_workers.map(len, [[1], [], [1, 2]])) == [1, 0, 2]  # the session goes on


@with_spark
def test_workers_of_this_machine_are_reached_from_it_alone(two_workers):
    java = two_workers._opened.session.sparkContext._gateway.proc.pid
    heard = {found.here for found in sockets_of([java, os.getpid()]) if found.listens}
    assert heard
    assert heard <= {"127.0.0.1", "::ffff:127.0.0.1"}
    settings = two_workers._opened.session.sparkContext.getConf()
    assert settings.get("spark.authenticate") == "true"
    folder = Path(two_workers._opened.folder.name)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert list(folder.glob("blockmgr-*"))
    mine = {found.owner() for found in folder.rglob("*")}
    assert len(mine) == 1


@with_spark
def test_one_process_has_one_session(two_workers):
    with pytest.raises(OptionError, match=r"already, of local\[2,4\], .* of local\[3,4\]; stop it"):
        fedopl.SparkEngine("local[3]").connect()
    same = fedopl.SparkEngine()
    same.connect()
    same.close()  # and it goes on, as it was not this engine's
    assert list(two_workers.map(len, [[1]])) == [1]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@with_spark
def test_a_client_file_names_spark(two_workers, rows, tmp_path):
    data = rows()
    folder = next(up for up in data.contexts.path.parents if (up / "rows.parquet").exists())
    asked = '[engine]\nkind = "spark"\naddress = "local[2]"\n'
    text = f'[data]\nfile = "{folder / "rows.parquet"}"\n{asked}'
    (tmp_path / "client.toml").write_text(text)
    read = read_client(tmp_path).read(data.schema)
    assert isinstance(read.engine, SparkEngine)
    assert sums_of(read) == sums_of(data)
    shared_engine.cache_clear()
