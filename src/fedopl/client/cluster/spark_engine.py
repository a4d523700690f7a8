"""Spark workers that sum a client's rows on disk, partition by partition. Needs the `spark` extra.

The workers are the client's own. A Spark job is a few numbers of partitions; `mapInArrow` hands
them to Python processes, which read the client's files by themselves and answer with sums.
"""

import atexit
import contextlib
import os
import re
import shutil
import signal
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from subprocess import TimeoutExpired
from tempfile import TemporaryDirectory
from typing import Any, TypeVar
from uuid import uuid4

from fedopl.base.errors import FedoplError, OptionError, StorageError
from fedopl.client.cluster.workers import (
    AHEAD,
    all_gone,
    answer_bytes,
    answered,
    check_asked,
    check_size,
    check_versions,
    computed,
    connection_lost,
    died_of_rows,
    no_worker,
    size_of,
    task_bytes,
    versions,
)
from fedopl.client.disk.passes import Partition
from fedopl.client.disk.prefetch import results_in_order

_Total = TypeVar("_Total")

SPARK_PACKAGES = ("pyspark", "cloudpickle", "pandas")  # without pandas, Spark has no mapInArrow
ANSWER = "number long, answer binary"
ON_THIS_MACHINE = re.compile(r"local(?:\[(\d+|\*)(?:,\d+)?\])?")
MASTERS = re.compile(
    rf"{ON_THIS_MACHINE.pattern}|local-cluster\[\d+,\d+,\d+\]|spark://[^/]+:\d+|yarn|k8s://.+"
)
TRIES = 4  # of a task whose worker died; Spark's own number for clusters
PATIENCE = 30  # seconds for Java to end
# Whoever reaches a driver can run programs by it, so it listens on this machine only, to those who
# know its secret. Errors are raised here, and need not be printed by Spark as well.
LOCAL_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.authenticate": "true",
    "spark.ui.showConsoleProgress": "false",
}
SILENT_LOG = """\
status = off
appender.nobody.type = Null
appender.nobody.name = nobody
rootLogger.level = off
rootLogger.appenderRef.nobody.ref = nobody
"""


# --- a session of this process: the one that it has, or one that is started and ended here --------


@dataclass(frozen=True)
class SparkMaster:
    """Who hands out work: a cluster's master, or Spark on this machine."""

    address: str | None
    workers: int | None

    def __post_init__(self) -> None:
        if self.address is not None and not MASTERS.fullmatch(self.address):
            raise OptionError(
                f"engine: '{self.address}' is no address of a Spark master; expected one like "
                "spark://lake.example.org:7077, yarn, k8s://https://lake.example.org:6443 or "
                "local[2]"
            )

    def __str__(self) -> str:
        return self.address or "Spark on this machine"

    @property
    def url(self) -> str:
        """As Spark writes it; on this machine, too, a task is tried again."""
        if self.address is None:
            return f"local[{self.workers or '*'},{TRIES}]"
        found = ON_THIS_MACHINE.fullmatch(self.address)
        if found and "," not in self.address:
            return f"local[{found[1] or 1},{TRIES}]"
        return self.address

    @property
    def is_on_this_machine(self) -> bool:
        """Whether workers are processes that this one starts."""
        return bool(ON_THIS_MACHINE.fullmatch(self.url))

    def check_same(self, running: str) -> None:
        """Refuse another master than that of the session that this process has."""
        if self.workers or (self.address and running not in (self.address, self.url)):
            raise OptionError(
                f"engine: this process has a Spark session already, of {running}, and can have no "
                f"second one, of {self.url}; stop it first, or leave out address and workers to "
                "use it"
            )

    def check_reached(self, wait: float) -> None:
        """Refuse a master of which no address can be reached: Spark itself would try for long."""
        if self.address is None or not self.address.startswith("spark://"):
            return
        why = ""
        for place in self.address.removeprefix("spark://").split(","):
            host, _, port = place.rpartition(":")
            try:
                with socket.create_connection((host.strip("[]"), int(port)), wait):
                    return
            except (OSError, ValueError, OverflowError) as error:
                why = type(error).__name__
        raise OptionError(
            f"engine: no Spark master could be reached at {self.address} in {wait:g} seconds "
            f"({why}); start one (sbin/start-master.sh), or correct the address"
        )


def check_java() -> None:
    """Refuse a machine without Java."""
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java", path=str(Path(home) / "bin") if home else None) is None:
        where = f"JAVA_HOME is {home}, where there is none" if home else "no java is found"
        raise OptionError(
            f"engine: Spark runs on Java, and {where}; install Java 17 or newer, or set JAVA_HOME "
            "to its folder"
        )


class SparkSessionHere:
    """A session of this process, and what was started for it."""

    def __init__(self, master: SparkMaster, wait: float) -> None:
        from pyspark import SparkContext
        from pyspark.sql import SparkSession

        running = SparkContext._active_spark_context
        self._is_ours = running is None
        self._java_is_ours = SparkContext._gateway is None
        # Where Spark writes on this machine; no other user can read it.
        self.folder: TemporaryDirectory[str] | None = None
        if running is not None:
            master.check_same(running.master)
            self.session: Any = SparkSession.builder.getOrCreate()
            return
        check_java()
        master.check_reached(wait)
        if master.is_on_this_machine:
            self.folder = TemporaryDirectory(prefix="fedopl-spark-", ignore_cleanup_errors=True)
        before = signal.getsignal(signal.SIGINT)
        try:
            self.session = _configured(SparkSession.builder, master, self.folder).getOrCreate()
        except Exception as error:
            self._end_java()
            raise OptionError(
                f"engine: {master} did not start or did not answer ({head_of_error(error)}); "
                "Spark needs Java 17 or newer, and a master of its own version"
            ) from None
        finally:
            with contextlib.suppress(ValueError, TypeError):  # not in the main thread
                signal.signal(signal.SIGINT, before)  # Spark puts its own in place
        if master.is_on_this_machine:
            self.session.sparkContext.pythonExec = os.environ.get("PYSPARK_PYTHON", sys.executable)
        atexit.register(self.close)

    def close(self) -> None:
        """End the session, unless it was there before."""
        if self._is_ours:
            self.session.stop()
            self._end_java()
            atexit.unregister(self.close)

    def _end_java(self) -> None:
        """End Java, if it was started here: it keeps settings for later ones."""
        from pyspark import SparkContext

        gateway: Any = SparkContext._gateway
        if gateway is not None and self._java_is_ours:
            SparkContext._gateway = SparkContext._jvm = None
            gateway.shutdown()
            gateway.proc.stdin.close()  # upon which it ends
            try:
                gateway.proc.wait(timeout=PATIENCE)
            except TimeoutExpired:
                gateway.proc.kill()
                gateway.proc.wait()
        if self.folder:
            self.folder.cleanup()


def _configured(builder: Any, master: SparkMaster, folder: TemporaryDirectory[str] | None) -> Any:
    # No page that tells what is computed.
    settings = {"spark.app.name": "fedopl", "spark.ui.enabled": "false"}
    if folder:
        # Spark writes into this folder: large results go through files, which others could read.
        log = Path(folder.name) / "log4j2.properties"
        log.write_text(SILENT_LOG)
        settings |= LOCAL_SETTINGS | {
            "spark.local.dir": folder.name,
            "spark.driver.extraJavaOptions": f'-Djava.io.tmpdir="{folder.name}" '
            f'-Dlog4j2.configurationFile="{log.as_uri()}"',
        }
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.master(master.url)


def head_of_error(error: object) -> str:
    """The beginning of an error of Spark's, whose texts go on for pages."""
    lines = [line.strip(": ") for line in str(error).splitlines()]
    told = [line for line in lines if line and not line.startswith("An error occurred while")]
    return told[0][:200] if told else type(error).__name__


# --- the engine -----------------------------------------------------------------------------------


class SparkEngine:
    """Workers of Spark: of a cluster, by its master's address, or on this machine.

    A Spark session that this process has already is used as it is, and goes on afterwards.

    Args:
        address: of a master: spark://lake.example.org:7077, yarn, k8s://... or local[2]. Without
            it, workers are started on this machine, and end with this process.
        workers: how many to start on this machine; default: as many as it has cores.
        wait: for how many seconds to wait for the master, and for a first worker.

    """

    def __init__(
        self, address: str | None = None, *, workers: int | None = None, wait: float = 30.0
    ) -> None:
        check_asked(address, workers, wait, extra="spark", packages=SPARK_PACKAGES)
        self._master, self._wait, self._worked = SparkMaster(address, workers), wait, False

    @cached_property
    def _opened(self) -> SparkSessionHere:
        return SparkSessionHere(self._master, self._wait)

    @property
    def _name(self) -> str:
        return str(self._master)

    @cached_property
    def _jobs(self) -> ThreadPoolExecutor:
        """Threads of this process that each wait for a job."""
        return ThreadPoolExecutor(AHEAD, thread_name_prefix="spark-job")

    def connect(self) -> None:
        """Reach the cluster, or start it, and have its workers compare versions."""
        try:
            list(self._everywhere(lambda _: None))
        except BaseException:
            self.close()
            raise

    def check(self, file: Path, n_bytes: int) -> None:
        """Refuse workers that do not see this file as it is here."""
        for worker, found in self._everywhere(partial(_size_there, file.absolute())):
            check_size(file, n_bytes, worker, found)

    def _everywhere(self, task: Callable[[Partition], _Total]) -> Iterator[_Total]:
        """What the task finds in as many tasks as can run at once; Spark decides where."""
        return self.map(task, [[]] * self._n_at_once())

    def _n_at_once(self) -> int:
        return max(1, int(self._context.defaultParallelism))

    def map(
        self, task: Callable[[Partition], _Total], partitions: Sequence[Partition]
    ) -> Iterator[_Total]:
        """What the task makes of each partition, in their order; some are under way meanwhile."""
        content, context = task_bytes(task), self._context
        work, group = context.broadcast((content, partitions, versions())), f"fedopl-{uuid4()}"

        def submit(numbers: range) -> Future[list[bytes]]:
            return self._jobs.submit(self._job, group, work, numbers)

        jobs = self._numbers(len(partitions))
        try:
            for contents in results_in_order(submit, self._result, jobs, AHEAD):
                yield from map(answered, contents)
        except BaseException:
            with contextlib.suppress(Exception):  # where the session is lost, nothing is left
                context.cancelJobGroup(group)
            raise
        finally:
            with contextlib.suppress(Exception):
                work.destroy()

    @property
    def _context(self) -> Any:
        """Spark's side of the session, if it still runs."""
        context = self._opened.session.sparkContext
        try:
            if not context._jsc.sc().isStopped():
                return context
        except Exception:
            raise connection_lost(self._name) from None
        raise connection_lost(self._name)

    def _numbers(self, n_partitions: int) -> Iterator[range]:
        """The numbers of partitions of each job: as many as can be computed at once."""
        start = 0
        while start < n_partitions:
            stop = min(n_partitions, start + self._n_at_once())
            yield range(start, stop)
            start = stop

    def _job(self, group: str, work: Any, numbers: range) -> list[bytes]:
        """The answers for these partitions in order, each by a task of its own."""
        session = self._opened.session
        session.sparkContext.setJobGroup(group, "fedopl: sums over rows", interruptOnCancel=True)
        asked = session.range(numbers.start, numbers.stop, 1, len(numbers))
        found = asked.mapInArrow(_answering(work), ANSWER).collect()
        return [row.answer for row in sorted(found, key=lambda row: row.number)]

    def _result(self, job: Future[list[bytes]]) -> list[bytes]:
        """The answers of one job; Spark has a task tried again where a worker died."""
        while not wait([job], timeout=self._wait).done:
            if not self._has_workers():
                raise all_gone(self._name) if self._worked else no_worker(self._name, self._wait)
        try:
            answers = job.result()
        except Exception as error:
            raise error_meant(self._name, error) from None
        self._worked = True
        return answers

    def _has_workers(self) -> bool:
        """Whether anybody could work: Spark itself waits for workers without end."""
        java = self._opened.session.sparkContext._jsc.sc()
        with_the_driver = java.statusTracker().getExecutorInfos()
        return bool(java.isLocal()) or len(with_the_driver) > 1

    def close(self) -> None:
        """End the session, and with it the workers, unless it was there before."""
        if "_jobs" in vars(self):
            self._jobs.shutdown(wait=False, cancel_futures=True)
        if "_opened" in vars(self):
            self._opened.close()


def error_meant(name: str, error: Exception) -> FedoplError:
    """What Spark's error means to a client."""
    text = str(error)
    for pattern, meaning in MEANINGS.items():
        if re.search(pattern, text):
            return meaning(name)
    return StorageError(f"{name}: Spark gave up a task ({head_of_error(error)}); see its logs")


# In this order: what Spark says of a task that it gave up also quotes why.
MEANINGS: dict[str, Callable[[str], FedoplError]] = {
    "PYTHON_VERSION_MISMATCH": lambda name: OptionError(
        f"engine: workers of {name} have another version of Python than "
        f"{'.'.join(map(str, sys.version_info[:2]))}, which runs here; let PYSPARK_PYTHON name "
        "the same"
    ),
    "ModuleNotFoundError|ImportError": lambda name: OptionError(
        f"engine: workers of {name} cannot import what they need; install fedopl there with the "
        "same versions, for the Python that PYSPARK_PYTHON names"
    ),
    "maxResultSize": lambda name: StorageError(
        f"{name}: results of a step take more than spark.driver.maxResultSize; set it higher in "
        "spark-defaults.conf, and spark.driver.memory too"
    ),
    "exited unexpectedly|crashed|ExecutorLostFailure|EOFException": died_of_rows,
    "stopped SparkContext|SparkContext was shut down|SparkContext has been shut": connection_lost,
    "Error while sending or receiving|Answer from Java side is empty|refused": connection_lost,
}


# --- what workers run ----------------------------------------------------------------------------


def _answering(work: Any) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """What a worker does with numbers of partitions, which come in Arrow's batches."""

    def answers(batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow as pa

        schema = pa.schema([("number", pa.int64()), ("answer", pa.binary())])
        task, partitions, here = work.value
        for batch in batches:
            for number in batch.column(0).to_pylist():
                answer = answer_bytes(partial(_checked, here, task), partitions[number])
                yield pa.record_batch([[number], [answer]], schema=schema)

    return answers


def _checked(here: dict[str, str], task: bytes, partition: Partition) -> object:
    """What the task makes of a partition, by a worker with the client's versions."""
    check_versions(socket.gethostname(), versions(), here)
    return computed(task, partition)


def _size_there(file: Path, _: Partition) -> tuple[str, int | None]:
    return socket.gethostname(), size_of(file)
