"""The command in this process and in its own, and a small study to point it at."""

import contextlib
import csv
import io
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from fedopl.base.files import write_atomically
from fedopl.cli import app

FEDOPL = Path(sys.executable).with_name("fedopl")
NAMES = ("north", "south", "west")
STUDY = """\
name = "Tiny"

[outcome]
column = "gain"
direction = "higher"

[action]
column = "arm"
levels = ["usual", "new"]

[features]
age = "number"
severity = "number"
living = ["with others", "alone"]

[nuisances]
propensity = "marginal"
"""
CLIENT = '[data]\nfile = "data.csv"\n'
# Kept as a client that makes one keeps it: folders with the same rows give the same results.
STRONG = "b7a02f0dd1ffe04c86d4bfacbe24623d159f2c65746bcac3fd30ea5adaa20d18"  # a secret
SECRET = "7865a0128ddbf92e47ad477cbe24623d159f2c65746bcac3fd30ea5adaa20d18\n"


@dataclass(frozen=True)
class Done:
    """What a command left on its way."""

    code: int
    out: str
    err: str

    @property
    def text(self):
        return self.out + self.err

    def json(self):
        return strict_json(self.out)


def strict_json(text):
    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


def fedopl(*arguments):
    """The command in this process: quick, and the same code from `main` on."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["fedopl", *map(str, arguments)])
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                app.main()
                code = 0
            except SystemExit as end:
                code = end.code or 0
    return Done(code, out.getvalue(), err.getvalue())


def installed(*arguments, **options):
    """The installed command in a process of its own."""
    done = subprocess.run(
        [FEDOPL, *map(str, arguments)], capture_output=True, text=True, check=False, **options
    )
    return Done(done.returncode, done.stdout, done.stderr)


def rows(n_rows=160, seed=0):
    """A table of the tiny study, as columns of text."""
    rng = np.random.default_rng(seed)
    age, severity = rng.normal(60, 9, n_rows), rng.gamma(2, 1, n_rows)
    alone, new = rng.random(n_rows) < 0.4, rng.random(n_rows) < 0.5
    gain = 10 - severity + new * (severity - 2) + rng.normal(0, 1, n_rows)
    return {
        "age": [f"{number:.2f}" for number in age],
        "severity": [f"{number:.3f}" for number in severity],
        "living": ["alone" if flag else "with others" for flag in alone],
        "arm": ["new" if flag else "usual" for flag in new],
        "gain": [f"{number:.4f}" for number in gain],
    }


def turned(table):
    """The same rows, in which the new arm does good where it did harm."""
    new = np.array([arm == "new" for arm in table["arm"]])
    effect = np.array(table["severity"], float) - 2
    gain = np.array(table["gain"], float) - 2 * new * effect
    return table | {"gain": [f"{number:.4f}" for number in gain]}


def write_csv(path, columns, encoding="utf-8"):
    with path.open("w", encoding=encoding, newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))


@dataclass(frozen=True)
class Tiny:
    """A study of three small clients in a folder, to be broken in one place."""

    folder: Path

    @property
    def study(self):
        return self.folder / "study.toml"

    @property
    def clients(self):
        return self.folder / "clients"

    @property
    def out(self):
        return self.folder / "run"

    def table(self, name="north"):
        return self.clients / name / "data.csv"

    def settings(self, name="north"):
        return self.clients / name / "client.toml"

    def secret(self, name="north"):
        return self.clients / name / "secret"

    def change(self, **columns):
        """Write north's table with these columns instead; None takes one out."""
        table = {**rows(), **columns}
        write_csv(self.table(), {name: cells for name, cells in table.items() if cells is not None})

    def edit(self, old, new, path=None):
        path = path or self.study
        text = path.read_text(encoding="utf-8")
        assert old in text
        path.write_text(text.replace(old, new, 1), encoding="utf-8")

    def add(self, text, path=None):
        path = path or self.study
        path.write_text(path.read_text(encoding="utf-8") + text, encoding="utf-8")

    def check(self, *more):
        return fedopl("check", self.study, "--clients", self.clients, *more)

    def run(self, *more):
        """Run it, with empty figures in the report: to draw them takes longer than all else."""
        from fedopl.report.figures.drawing import Drawing

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Drawing, "svg", "<svg></svg>")
            return self.run_and_draw(*more)

    def run_and_draw(self, *more):
        return fedopl("run", self.study, "--clients", self.clients, "--out", self.out, *more)


def write_tiny(folder, names=NAMES):
    tiny = Tiny(folder)
    for turn, name in enumerate(names):
        (tiny.clients / name).mkdir(parents=True)
        tiny.settings(name).write_text(CLIENT)
        write_atomically(tiny.secret(name), SECRET.encode(), mode=0o600)
        write_csv(tiny.table(name), rows(seed=turn))
    tiny.study.write_text(STUDY)
    return tiny


def everything_in(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
