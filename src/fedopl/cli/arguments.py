"""Arguments that several verbs take."""

from pathlib import Path
from typing import Annotated

import typer

StudyPath = Annotated[
    Path, typer.Argument(metavar="STUDY", help="the study file, such as study.toml")
]
StudyOption = Annotated[Path, typer.Option(help="the study file")]
ClientsFolder = Annotated[
    Path, typer.Option("--clients", help="the folder with a folder for each client")
]
ClientPath = Annotated[Path, typer.Argument(help="the client's folder, or its client.toml")]
ClientHere = Annotated[
    Path | None,
    typer.Option(
        "--client",
        help="the client's folder: its column names, labels and permitted actions apply; or only "
        "its name, for the permitted actions, and for a personal policy that it shares",
    ),
]
Shared = Annotated[
    bool,
    typer.Option("--shared", help="use the shared policy, even if the client has a personal one"),
]
PolicyPath = Annotated[Path, typer.Argument(help="a policy.json, or the folder of a run")]
Resume = Annotated[bool, typer.Option("--resume", help="continue with what is in the folder")]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="the folder of a finished run")]
AsJson = Annotated[bool, typer.Option("--json", help="print JSON, for programs")]
Threads = Annotated[int, typer.Option(min=1, max=1000, help="how many clients work at once")]
Serve = Annotated[
    bool,
    typer.Option(
        "--serve", help="also show the run on a page of this machine, which turns into the report"
    ),
]
Port = Annotated[
    int, typer.Option(min=0, max=65535, help="of the page that --serve serves; 0: a free one")
]
Arrival = Annotated[float, typer.Option(min=1, help="seconds to wait for clients to be there")]
Deadline = Annotated[float, typer.Option(min=1, help="seconds to wait for answers on each trip")]
