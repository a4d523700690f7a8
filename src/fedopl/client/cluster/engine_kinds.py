"""The kinds of workers that `client.toml` can name."""

from functools import lru_cache
from typing import Literal

from fedopl.client.cluster.dask_engine import DaskEngine
from fedopl.client.cluster.spark_engine import SparkEngine

EngineKind = Literal["dask", "spark"]
ENGINES: dict[EngineKind, type[DaskEngine] | type[SparkEngine]] = {
    "dask": DaskEngine,
    "spark": SparkEngine,
}


@lru_cache(8)
def shared_engine(
    kind: EngineKind, address: str | None, workers: int | None, wait: float
) -> DaskEngine | SparkEngine:
    """One engine for all clients of this process that ask for the same, connected."""
    engine = ENGINES[kind](address, workers=workers, wait=wait)
    engine.connect()
    return engine
