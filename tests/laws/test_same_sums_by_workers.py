"""Workers that go through a client's rows change no bit of anything, and are sent no row."""

import os
import signal
import socket
import ssl
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import fedopl
from fedopl.base.errors import OptionError, PrivacyError, StorageError
from fedopl.client.cluster.workers import computed, task_bytes
from fedopl.client.disclosure.private_draws import PrivateDraws
from fedopl.client.disk import passes
from fedopl.client.rows import study_rows
from fedopl.client.table.logged_data import with_engine

distributed = pytest.importorskip("distributed")
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")

N_ROWS, N_FEATURES, ROWS_PER_CHUNK, CHUNKS_PER_PARTITION = 2600, 4, 200, 3
KEY = "nobody may know this"
NOT_DESCRIBED = fedopl.EvaluationPlan(describe=False)


@pytest.fixture(autouse=True)
def small_partitions(monkeypatch):
    """Five partitions of a small table, the last of a single chunk."""
    monkeypatch.setattr(study_rows, "ROWS_PER_CHUNK", ROWS_PER_CHUNK)
    monkeypatch.setattr(passes, "CHUNKS_PER_PARTITION", CHUNKS_PER_PARTITION)


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    rng = np.random.default_rng(7)
    x, action = rng.normal(size=(N_ROWS, N_FEATURES)), rng.integers(0, 3, N_ROWS)
    x[:, 3] = np.arange(N_ROWS) % 5 == 0
    gained = (x[:, :3] * np.eye(3)[action]).sum(axis=1) + rng.normal(size=N_ROWS)
    columns = {f"x{k}": x[:, k] for k in range(N_FEATURES)}
    columns |= {"done": np.array(list("abc"))[action], "gained": gained}
    columns |= {"weight": rng.uniform(0.5, 2, N_ROWS), "person": np.arange(N_ROWS) // 2}
    folder = tmp_path_factory.mktemp("lake")
    parquet.write_table(pa.table(columns), folder / "rows.parquet")

    def read(**more):
        schema = fedopl.Schema(
            action="done",
            actions=("a", "b", "c"),
            reward="gained",
            direction="higher",
            numeric=[f"x{k}" for k in range(N_FEATURES)],
            **more,
        )
        return fedopl.read_logged(folder / "rows.parquet", schema, on_disk=folder / "rows")

    return read


class Elsewhere:
    """Workers that have nothing but bytes, and finish in the reverse order."""

    def __init__(self):
        self.sent = []

    def check(self, file, n_bytes):
        assert file.stat().st_size == n_bytes

    def map(self, task, partitions):
        self.sent.append(task_bytes(task))
        found = [computed(self.sent[-1], list(part)) for part in reversed(partitions)]
        return iter(found[::-1])


def learned(data, **more):
    given = {"basis": "linear", "limits": fedopl.Limits(), "evaluation": NOT_DESCRIBED} | more
    run = fedopl.learn({"only": data}, **given)
    assert not run.refusals
    return run.policy.numbers().tobytes(), repr(run.values)


@pytest.fixture(scope="module")
def alone(rows):
    """What comes of the rows without workers; a plan's by its name."""
    return cache(lambda name="by limits": learned(rows(), **PLANS[name]))


PLANS = {
    "by limits": {},
    "terms, described": {"basis": "auto", "evaluation": fedopl.EvaluationPlan()},
    "tree": {"policy": "tree"},
    "cross-fitted": {"evaluation": fedopl.EvaluationPlan(kind="cross-fitted", describe=False)},
    "cross-fitted tree": {"policy": "tree", "evaluation": "cross-fitted"},
    "cross-fitted candidates": {"policy": "finite", "evaluation": "cross-fitted"},
    "logistic": {"nuisances": fedopl.NuisancePlan(propensity="logistic", kind="local")},
}


@pytest.mark.parametrize("plan", PLANS)
def test_whoever_sums_the_rows_every_bit_is_the_same(plan, rows, alone):
    engine = Elsewhere()
    assert learned(with_engine(rows(), engine), **PLANS[plan]) == alone(plan)
    assert len(engine.sent) >= 4


@pytest.mark.parametrize("more", [{"weight": "weight"}, {"group": "person"}])
def test_so_it_is_with_weights_and_with_groups(more, rows):
    data = rows(**more)
    assert learned(with_engine(data, Elsewhere())) == learned(data)


def test_partitions_change_results_by_rounding_alone(rows, alone, monkeypatch):
    apart, _ = alone()
    monkeypatch.setattr(passes, "CHUNKS_PER_PARTITION", 1000)
    at_once, _ = learned(rows())
    assert apart != at_once  # else nothing above shows anything
    np.testing.assert_allclose(np.frombuffer(apart), np.frombuffer(at_once), rtol=1e-9)


def test_tasks_hold_neither_rows_nor_the_secret(rows):
    data, engine = rows(), Elsewhere()
    learned(with_engine(data, engine))
    sums_of(with_engine(data, engine))
    content = b"".join(engine.sent)
    assert b"contexts" in content  # the name of a file
    assert KEY.encode() not in content
    every = data.part(slice(None))
    # Medians of columns, about which squares are summed, are numbers of some rows each.
    for row in range(0, N_ROWS, 3):
        numbers = [*every.contexts[row, :3], every.rewards[row]]
        assert sum(number.tobytes() in content for number in numbers) <= 1


def test_rows_in_memory_are_not_sent(rows):
    some = rows().part(slice(0, 100))
    with pytest.raises(PrivacyError, match="holds rows"):
        task_bytes(lambda _: some.n_rows)


# --- with Dask -------------------------------------------------------------------------------


def sums_of(data):
    study = fedopl.Study(actions=data.action_names, features=data.feature_names)
    draws = PrivateDraws(study.seed, "only", KEY)
    return study_rows.StudyRows(data, study, 5, draws).fold_sums().sums.tobytes()


@pytest.mark.parametrize("n_workers", [1, 2, 3])
def test_dask_changes_no_bit_for_any_number_of_workers(n_workers, rows, alone):
    data, found_by = rows(), learned if n_workers == 2 else sums_of
    with distributed.LocalCluster(
        n_workers=n_workers, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0"
    ) as cluster:
        engine = fedopl.DaskEngine(cluster.scheduler_address, wait=180)
        found = found_by(with_engine(data, engine))
        engine.close()
    assert found == (alone() if n_workers == 2 else sums_of(data))


def test_after_a_worker_was_killed_every_bit_is_the_same(rows, tmp_path):
    data, engine, mark = rows(), fedopl.DaskEngine(workers=1, wait=180), tmp_path / "was killed"

    class Killing:
        check = engine.check

        def map(self, task, partitions):
            def killed_once(partition):
                found = task(partition)
                if partition[0].start and not mark.exists():
                    mark.touch()
                    os.kill(os.getpid(), signal.SIGKILL)
                return found

            return engine.map(killed_once, partitions)

    found = sums_of(with_engine(data, Killing()))
    assert mark.exists()
    host, _, port = engine._local_cluster.scheduler_address.removeprefix("tls://").partition(":")
    stranger = ssl.create_default_context()
    stranger.check_hostname, stranger.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection((host, int(port)), timeout=10) as plain,
        pytest.raises((ssl.SSLError, ConnectionError)),  # without a certificate of the cluster's
        stranger.wrap_socket(plain) as reached,
    ):
        assert not reached.recv(1)
    engine.close()
    assert found == sums_of(data)


def test_workers_must_see_the_same_files(rows, monkeypatch):
    data = rows()
    monkeypatch.setattr("fedopl.client.cluster.dask_engine.size_of", lambda _: 5)
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0"
    ) as cluster:
        engine = fedopl.DaskEngine(cluster.scheduler_address, wait=180)
        with pytest.raises(StorageError, match=r"contexts: has .* bytes here, .* sees 5 bytes"):
            with_engine(data, engine)
        engine.close()


def test_a_scheduler_that_is_not_there_is_said_in_bounded_time():
    with pytest.raises(OptionError, match=r"no Dask scheduler could be reached at tcp://127"):
        fedopl.DaskEngine("tcp://127.0.0.1:9", wait=0.5).connect()


@pytest.mark.parametrize("address", ["127.0.0.1", "spark://lake:7077", "tls://lake:port"])
def test_an_address_that_is_none_of_a_scheduler_is_refused_before_dask_has_it(address, monkeypatch):
    """A client of Dask that fails on it prints a traceback when the process ends."""
    import distributed

    monkeypatch.setattr(distributed, "Client", None)
    with pytest.raises(OptionError, match="expected that of a Dask scheduler"):
        fedopl.DaskEngine(address, wait=0.3).connect()


def test_without_the_extra_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr("fedopl.client.cluster.workers.find_spec", lambda _: None)
    with pytest.raises(OptionError, match=r"pip install 'fedopl\[dask\]'"):
        fedopl.DaskEngine()


def test_an_engine_needs_rows_on_disk(rows, tmp_path):
    schema = rows().schema
    with pytest.raises(OptionError, match="on_disk"):
        fedopl.read_logged(Path("any.parquet"), schema, engine=Elsewhere())
    with pytest.raises(OptionError, match="leave out the address"):
        fedopl.DaskEngine("tcp://127.0.0.1:9", workers=2)
