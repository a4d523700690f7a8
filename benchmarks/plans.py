"""Whether `fedopl cost` is right: what it plans from a few made-up clients, and what a run takes.

20 rows a client, 2 actions, 5 features, propensities known; rows are held out and decisions
described, as by default. Of all clients 30 % never answer. A run is one in process with as many
made-up clients; seconds are the processor's, of all clients and of the server. Each is measured
once.
"""

from typing import Any

from harness import Column, Options, Row, Table, options, tell, write

SIZES, QUICK = (1_000, 10_000, 100_000), (40,)
N_ROWS, N_ACTIONS, N_FEATURES, DROPOUT = 20, 2, 5, 0.3
READING = """
Bytes are planned exactly. Seconds are estimates from rehearsals of at most 200 clients: they rest
on what a client and the server did in these few seconds. Other programs ran beside, so the plan and
the run did not meet the same machine.
"""
COLUMNS = (
    Column("clients", "{clients:,}"),
    Column("server sends: planned, B", "{planned_sent:,}"),
    Column("in a run, B", "{sent:,}"),
    Column("receives: planned, B", "{planned_received:,}"),
    Column("in a run, B", "{received:,}"),
    Column("server: planned, CPU s", "{planned_server:~3}"),
    Column("in a run, CPU s", "{server:~3}"),
    Column("a client: planned, CPU ms", "{planned_ms:~3}"),
    Column("in a run, CPU ms", "{ms:~3}"),
)


def study() -> Any:
    """What is planned and run."""
    from fedopl.study.plans import NuisancePlan
    from fedopl.study.study import Study

    return Study(
        actions=tuple("ab"[:N_ACTIONS]),
        features=tuple(f"x{place}" for place in range(N_FEATURES)),
        nuisances=NuisancePlan(propensity="known"),
    )


def planned_and_run(n_clients: int, group: int | None = None) -> tuple[Any, Any, Row]:
    """The plan, the run, and what both say of the server and of a client."""
    from fedopl.engines.plan_cost import plan_cost
    from fedopl.engines.rehearse_cost import rehearse_cost

    asked: dict[str, Any] = {"rows": N_ROWS, "dropout": DROPOUT, "group": group}
    plan = plan_cost(study(), clients=n_clients, **asked)
    run = rehearse_cost(study(), n_clients, **asked)
    answering = n_clients - int(DROPOUT * n_clients)
    row = {
        "clients": n_clients,
        "planned_received": plan.server.receives,
        "received": run.received,
        "planned_server": plan.server.seconds,
        "server": run.server_seconds,
        "planned_ms": 1e3 * plan.client.seconds,
        "ms": 1e3 * run.client_seconds / answering,
    }
    return plan, run, row


def measure(n_clients: int) -> Row:
    """The plan, and the run."""
    tell(__file__, f"{n_clients:,} clients")
    plan, run, row = planned_and_run(n_clients)
    return {**row, "planned_sent": plan.server.sends, "sent": run.sent}


def main(given: Options) -> None:
    """Measure and write."""
    rows = [measure(n_clients) for n_clients in given.sizes(SIZES, QUICK)]
    write(__file__, given, Table(COLUMNS, rows))


if __name__ == "__main__":
    main(options(__doc__))
