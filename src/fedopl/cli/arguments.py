"""Arguments that several verbs take."""

from pathlib import Path
from typing import Annotated

import typer

StudyPath = Annotated[
    Path, typer.Argument(metavar="STUDY", help="the study file, such as study.toml")
]
ClientsFolder = Annotated[
    Path,
    typer.Option("--clients", help="the folder with a folder for each client"),
]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="the folder of a finished run")]
AsJson = Annotated[bool, typer.Option("--json", help="print JSON, for programs")]
Threads = Annotated[int, typer.Option(min=1, max=1000, help="how many clients work at once")]
