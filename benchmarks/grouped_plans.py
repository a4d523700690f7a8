"""The same in groups: what `fedopl cost --group 100` plans, and what a run with aggregators takes.

The same clients, in groups of 100, of which 30 never answer; an aggregator speaks for each group.
Bytes of aggregators are of all of them together, to and from their clients. Each is measured once.
"""

from harness import Column, Options, Row, Table, options, tell, write
from plans import planned_and_run

READING = """
Bytes are planned exactly. An aggregator is planned to take, for each of its clients, what a server
takes; it does less for each, so this is too much.
"""
SIZES, QUICK, GROUP = (1_000, 10_000, 100_000), (200,), 100
COLUMNS = (
    Column("clients", "{clients:,}"),
    Column("server receives: planned, B", "{planned_received:,}"),
    Column("in a run, B", "{received:,}"),
    Column("aggregators receive: planned, B", "{planned_below:,}"),
    Column("in a run, B", "{below:,}"),
    Column("server: planned, CPU s", "{planned_server:~3}"),
    Column("in a run, CPU s", "{server:~3}"),
    Column("an aggregator: planned, CPU s", "{planned_aggregator:~3}"),
    Column("in a run, CPU s", "{aggregator:~3}"),
    Column("a client: planned, CPU ms", "{planned_ms:~3}"),
    Column("in a run, CPU ms", "{ms:~3}"),
)


def measure(n_clients: int) -> Row:
    """The plan, and the run."""
    tell(__file__, f"{n_clients:,} clients")
    plan, run, row = planned_and_run(n_clients, GROUP)
    return {
        **row,
        "planned_below": plan.groups * (plan.aggregator.receives - plan.client.receives),
        "below": run.received_below,
        "planned_aggregator": plan.aggregator.seconds,
        "aggregator": run.aggregator_seconds / plan.groups,
    }


def main(given: Options) -> None:
    """Measure and write."""
    rows = [measure(n_clients) for n_clients in given.sizes(SIZES, QUICK)]
    write(__file__, given, Table(COLUMNS, rows))


if __name__ == "__main__":
    main(options(__doc__))
