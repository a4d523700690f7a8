"""A Spark session of this process: the one that it has, or one that is started and ended here."""

import atexit
import contextlib
import os
import re
import shutil
import signal
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from subprocess import TimeoutExpired
from tempfile import TemporaryDirectory
from typing import Any

from fedopl.base.errors import OptionError

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
        self._folder: TemporaryDirectory[str] | None = None
        if running is not None:
            master.check_same(running.master)
            self.session: Any = SparkSession.builder.getOrCreate()
            return
        check_java()
        master.check_reached(wait)
        if master.is_on_this_machine:
            self._folder = TemporaryDirectory(prefix="fedopl-spark-", ignore_cleanup_errors=True)
        before = signal.getsignal(signal.SIGINT)
        try:
            self.session = _configured(SparkSession.builder, master, self._folder).getOrCreate()
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

    @property
    def folder(self) -> Path | None:
        """Where Spark writes on this machine; no other user can read it."""
        return Path(self._folder.name) if self._folder else None

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
        if self._folder:
            self._folder.cleanup()


def _configured(builder: Any, master: SparkMaster, folder: TemporaryDirectory[str] | None) -> Any:
    # No page that tells what is computed.
    settings = {"spark.app.name": "fedopl", "spark.ui.enabled": "false"}
    if folder:
        settings |= LOCAL_SETTINGS | _private(Path(folder.name))
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.master(master.url)


def _private(folder: Path) -> dict[str, str]:
    """Spark writes into this folder: large results go through files, which others could read."""
    log = folder / "log4j2.properties"
    log.write_text(SILENT_LOG)
    return {
        "spark.local.dir": str(folder),
        "spark.driver.extraJavaOptions": f'-Djava.io.tmpdir="{folder}" '
        f'-Dlog4j2.configurationFile="{log.as_uri()}"',
    }


def head_of_error(error: object) -> str:
    """The beginning of an error of Spark's, whose texts go on for pages."""
    lines = [line.strip(": ") for line in str(error).splitlines()]
    told = [line for line in lines if line and not line.startswith("An error occurred while")]
    return told[0][:200] if told else type(error).__name__
