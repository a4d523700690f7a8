"""Whether two checkouts of the project do the same, down to the last bit.

    python experiments/same_results.py BEFORE AFTER [--only JOB ...] [--keep FOLDER]
        [--default-limits] [--only-results [TOLERANCE]]

Each checkout runs the same jobs with this interpreter: studies of every kind, mistakes in files,
and the help of every command. They use only what users have, the command line and files. Then
everything that a job printed or wrote is compared: policies, values and sums bit for bit, the
report's visible text, the journal, and the hash and size of every query and answer from each
client's ledger. Times and the folder's own path are left out. `--keep` keeps the files of each
checkout; what BEFORE did there earlier is not done again. Ends with 1 if anything differs.

Clients' limits are open, as far as the checkout knows them, so that versions with other rules of
disclosure can be compared. Jobs that are about limits, and the demos, keep those of their files;
with `--default-limits`, all jobs do.

`--only-results` compares numbers that people use, each within a tolerance: policies, decisions,
values, sums, what `run.json` says of them, and tables of the report. Hashes, journals, ledgers and
words may differ. It ends with the largest difference of each job. Jobs about limits are left out.
"""

import argparse
import html
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path

import numpy as np
from results_apart import furthest_apart

# Every command of a job runs in one process: starting takes longer than most of them.
COMMANDS = """
import shlex, sys
from fedopl.cli.app import main
for line in sys.stdin:
    print(f"$ fedopl {line.strip()}", flush=True)
    sys.argv = ["fedopl", *shlex.split(line)]
    try:
        main()
    except SystemExit as end:
        print(f"[ended with {end.code}]", flush=True)
"""
VERBS = (
    *("demo", "init", "schema", "check", "preview", "run", "evaluate", "flower"),
    *("report", "compare", "diagnose", "explain", "decide", "ledger", "reproduce"),
)
RUN = "run study.toml --clients clients --out run"
AFTER_A_RUN = (
    "check study.toml --clients clients",
    "check study.toml --clients clients --json",
    "preview study.toml clients/west",
    "report run",
    "explain run",
    "diagnose run",
    "run study.toml --clients clients --out again --threads 2 --json",
    "compare run again",
    "evaluate run/policy.json --study study.toml --clients clients --json",
    "decide run clients/west/export.csv --client clients/west --out decided.csv",
    "decide run clients/south/discharges.parquet --out decided.parquet --json",
    "ledger clients/west",
    "run study.toml --clients clients --out run --resume --json",
)
FEW_ROWS_WILL_DO = "minimum_rows = 1\nparameter_share = 100"


@dataclass(frozen=True, kw_only=True)
class Job:
    """A study made from one of the demo's, and what is done with it."""

    name: str
    data: str = "three-hospitals"  # which of the demo's examples; empty for none
    changes: dict[str, str] = field(default_factory=dict)  # text of study.toml, old to new
    add: str = ""  # at the end of study.toml
    clients: dict[str, dict[str, str]] = field(default_factory=dict)  # of client.toml, old to new
    secrets: dict[str, str] = field(default_factory=dict)  # of clients, as hexadecimal digits
    only: tuple[str, ...] = ()  # clients that take part; everybody if none is named
    own_limits: bool = False  # those of its files, also where those of other jobs are open
    commands: tuple[str, ...] = (RUN,)


MISTAKES = {  # text of the three hospitals' study.toml, old to new
    "unknown key": ("[evaluation]", "[evaluation]\nshares = 1"),
    "wrong type": ("share = 0.3", 'share = "a third"'),
    "out of bounds": ("share = 0.3", "share = 1.5"),
    "unknown choice": ("[requires]", '[policy]\noracle = "csoa"\n\n[requires]'),
    "missing key": ('direction = "higher"', ""),
    "a label twice": ('"with others", "alone"', '"alone", "alone"'),
    "not TOML": ("[evaluation]", "[evaluation"),
    "contradiction": (
        "[requires]",
        '[policy]\nkind = "tree"\n[tree]\nthresholds = "observed"\n\n[requires]',
    ),
    "unknown client": ("[requires]", '[mixture]\nkind = "path"\ntoward = "east"\n\n[requires]'),
    "shares beyond 1": (
        "[requires]",
        '[mixture]\nkind = "given"\nshares = { north = 0.7, south = 0.7 }\n\n[requires]',
    ),
    "a cut twice": (
        "[requires]",
        '[policy]\nkind = "tree"\n[tree]\ncuts = { age = [40, 40] }\n\n[requires]',
    ),
    "a column nobody has": ('age = "number"', 'age = "number"\nheight = "number"'),
    "a level nobody named": ('"new drug", ', ""),
    "more than clients allow": ("values = true", "value_queries = 1000"),
}

JOBS = (
    Job(
        name="demo",
        own_limits=True,
        commands=("demo . --data three-hospitals", *AFTER_A_RUN),
    ),
    Job(
        name="RAND",
        data="rand-hie",
        own_limits=True,
        commands=("demo . --data rand-hie", "explain run --json", "diagnose run --json"),
    ),
    Job(name="three hospitals", commands=(RUN, *AFTER_A_RUN)),
    Job(
        name="RAND again",
        data="rand-hie",
        commands=(RUN, "explain run --json", "diagnose run --json"),
    ),
    Job(
        name="tree",
        add='[policy]\nkind = "tree"\n[tree]\ndepth = 2\nminimum_leaf = 20\n',
        commands=(RUN, "explain run", "preview study.toml clients/north --json", "diagnose run"),
    ),
    Job(
        name="deep tree, diagnosed",
        add='[policy]\nkind = "tree"\n[tree]\ndepth = 3\nbins = 8\nsplit_cost = 0.01\n'
        'allowed = [{ column = "age", above = 80, actions = ["usual care", "new drug"] }]\n'
        "[joining]\ndiagnose = true\n",
        commands=(RUN, "explain run --json", "diagnose run --json"),
    ),
    Job(
        name="tree, observed",
        add='[policy]\nkind = "tree"\n[tree]\ndepth = 2\nthresholds = "observed"\n',
        only=("north",),
    ),
    Job(
        name="diagnosed",
        add="[joining]\ndiagnose = true\n[declared]\nreward = 30\noverlap = 0.01\n",
        commands=(
            "preview study.toml clients/south --brief",
            RUN,
            "diagnose run",
            "diagnose run --json",
            "ledger clients/south --json",
        ),
    ),
    Job(
        name="csoaa-sgd",
        add='[policy]\noracle = "csoaa-sgd"\n'
        "[plan]\nrounds = 8\nlocal_steps = 10\nbatch_size = 64\nclients_per_round = 2\n"
        "proximal = 0.01\nmomentum = 0.5\n",
        secrets={"west": "a4a81069e436d04d1ec8c295f64efe78d7cfed38e86a00b583b52a2f4cf5be98"},
    ),
    Job(
        name="csoaa-sgd in blocks, rounds averaged",
        changes={'living = ["with others", "alone"]\n': ""},
        only=("north", "south"),  # west names a column that this study leaves out
        add='[policy]\noracle = "csoaa-sgd"\nfeatures = "blocks"\n'
        '[plan]\nrounds = 5\naverage = "rounds"\n'
        '[mixture]\nkind = "skewed"\ntoward = "south"\nalpha = 0.2\n',
    ),
    Job(name="csoaa-vw", add='[policy]\noracle = "csoaa-vw"\n[plan]\nrounds = 3\n'),
    Job(
        name="wap",
        add='[policy]\noracle = "wap"\n[mixture]\nkind = "uniform"\n',
        commands=(RUN, "explain run"),
    ),
    Job(
        name="direct",
        add='[policy]\noracle = "direct"\n',
        # The last steps rest on the few rows where the policy is undecided.
        clients={
            "south": {"minimum_cell = 10": FEW_ROWS_WILL_DO},
            "north": {"[data]": f"[limits]\n{FEW_ROWS_WILL_DO}\n\n[data]"},
            "west": {"[data]": f"[limits]\n{FEW_ROWS_WILL_DO}\n\n[data]"},
        },
    ),
    Job(
        name="finite, diagnosed",
        add='[policy]\nkind = "finite"\ncandidates = { "learned" = "learned.json" }\n'
        "[joining]\ndiagnose = true\n",
        commands=(RUN, "explain run", "diagnose run --json"),
    ),
    Job(
        name="private",
        add="[declared]\noverlap = 0.1\n[privacy]\nepsilon = 4\noutcome = [0, 30]\n"
        "[privacy.ranges]\nage = [30, 98]\nseverity = [0, 12]\nkidney_function = [8, 120]\n",
    ),
    Job(
        name="budget",
        add='[budget]\nshares = { "new drug" = 0.3 }\n',
        commands=(RUN, "budget run --json", "budget run --most 0.2 --client west --json"),
    ),
    Job(
        name="tree in a budget",
        add='[policy]\nkind = "tree"\n[tree]\ndepth = 2\n[budget]\nshares = { "new drug" = 0.3 }\n',
        commands=(RUN, "budget run --most 0.5 --json"),
    ),
    Job(
        name="candidates in a budget",
        add='[policy]\nkind = "finite"\ncandidates = { "learned" = "learned.json" }\n'
        '[budget]\nshares = { "new drug" = 0.3 }\n',
        commands=(RUN, "budget run --json"),
    ),
    Job(name="minimax", add='[mixture]\nkind = "minimax"\nsteps = 6\n'),
    Job(
        name="minimax tree",
        add='[policy]\nkind = "tree"\n[tree]\ndepth = 1\n[mixture]\nkind = "minimax"\nsteps = 4\n',
    ),
    Job(
        name="path, diagnosed",
        add='[mixture]\nkind = "path"\ntoward = "west"\n[joining]\ndiagnose = true\n',
    ),
    Job(
        name="local nuisances, weights, groups",
        data="rand-hie",
        changes={
            'family_size = "number"\n': "",
            "[rows]": '[rows]\nweight = "family_size"',
            'unseen = "borrow"': 'unseen = "mask"\nkind = "local"\noutcome = "ols"\n'
            'propensity = "logistic"\nclip = 0.02\nfolds = 3\n',
        },
        add='[policy]\nprecision = "clients"\n',
    ),
    Job(
        name="rows on disk",
        add='[nuisances]\nunseen = "mask"\n',
        clients={
            "south": {
                'file = "discharges.parquet"': 'file = "discharges.parquet"\nrows = "disk"\n'
                'numbers = "float32"'
            }
        },
    ),
    Job(
        name="refusals",
        own_limits=True,
        clients={
            "west": {"[data]": "[limits]\nminimum_rows = 5000\n\n[data]"},
            "south": {"minimum_cell = 10": "minimum_cell = 10\ndescriptions = 0"},
        },
        commands=(RUN, "ledger clients/west", "preview study.toml clients/west"),
    ),
    Job(
        name="mistakes",
        own_limits=True,
        commands=tuple(
            f"{verb} '{mistake}.toml' --clients clients{out}"
            for mistake in MISTAKES
            for verb, out in (("check", ""), ("run", f" --out 'run of {mistake}'"))
        ),
    ),
    Job(
        name="help and templates",
        own_limits=True,
        data="",
        commands=(
            "--help",
            *(f"{verb} --help" for verb in VERBS),
            *(f"flower {verb} --help" for verb in ("app", "up")),
            "schema study",
            "schema client",
            "init .",
            "check study.toml",
        ),
    ),
)
WRITES_ITS_DATA = "demo ."
LEARNED = "learned.json"  # the policy of the first of these jobs, a candidate of others
LEARNED_BY = "three hospitals"

# Limits that keep nothing back, of any version; a checkout gets those that it knows.
OPEN: dict[str, float] = {
    "minimum_rows": 1,
    "minimum_cell": 0,
    "parameter_share": 1e9,
    "value_noise": 0.0,
    "dominance": 1.0,
    **dict.fromkeys(
        (
            *("studies", "withheld_answers", "value_queries", "value_policies", "score_queries"),
            *("slope_queries", "descriptions", "count_queries", "cell_queries", "model_queries"),
            "classifier_queries",
        ),
        1_000_000,
    ),
}
OPEN_BY_DEFAULT = {"values", "epsilon", "delta", "norm_cap"}  # as far as the jobs need


def open_limits(checkout: Path) -> str:
    """The section of a client.toml with all limits open that this checkout knows."""
    ended = subprocess.run(
        [sys.executable, "-c", "import fedopl; print(*fedopl.Limits.model_fields)"],
        env=os.environ | {"PYTHONPATH": str(checkout / "src")},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return limits_of(ended.stdout.split())


def limits_of(names: list[str]) -> str:
    """The section in which limits of these names are open."""
    if strange := sorted({*names} - OPEN.keys() - OPEN_BY_DEFAULT):
        raise ValueError(f"no value here opens these limits: {', '.join(strange)}")
    lines = [f"{name} = {OPEN[name]!r}" for name in names if name in OPEN]
    return "\n".join(["[limits]", *lines, ""])


def with_limits(text: str, limits: str) -> str:
    """The text of a client.toml with this section instead of its own."""
    without = re.sub(r"^\[limits\]\n((?!\[).*\n)*", "", text, flags=re.M)
    return f"{without.rstrip()}\n\n{limits}"


@dataclass(frozen=True, kw_only=True)
class Side:
    """One of the two checkouts, and where its jobs are done."""

    checkout: Path
    folder: Path
    limits: str = ""  # a section for each client.toml; empty: those of the job

    def done(self, job: Job) -> Path:
        """The folder of this job, which is done if it was not."""
        folder = self.folder / _as_file_name(job.name)
        end = folder / "printed.txt"  # written last: a folder without it was left unfinished
        if not end.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            if job.data and not job.commands[0].startswith(WRITES_ITS_DATA):
                self._prepare(job, folder)
            printed = _fedopl(self.checkout, folder, job.commands)
            end.write_text(printed.replace(str(folder), "FOLDER"), encoding="utf-8")
        return folder

    def _prepare(self, job: Job, folder: Path) -> None:
        """Write the job's study and clients, from those that this checkout's demo wrote."""
        name = {"three-hospitals": "demo", "rand-hie": "RAND"}[job.data]
        demo = self.done(next(job for job in JOBS if job.name == name))
        text = (demo / "study.toml").read_text(encoding="utf-8")
        for mistake, change in MISTAKES.items() if job.name == "mistakes" else ():
            wrong = folder / f"{mistake}.toml"
            wrong.write_text(_changed(text, dict([change])), encoding="utf-8")
        text = f"{_changed(text, job.changes)}\n{job.add}"
        (folder / "study.toml").write_text(text, encoding="utf-8")
        if LEARNED in job.add:
            learned = self.done(next(job for job in JOBS if job.name == LEARNED_BY))
            shutil.copy(learned / "run" / "policy.json", folder / LEARNED)
        own = shutil.ignore_patterns("ledger.jsonl", "scores")
        for source in sorted((demo / "clients").iterdir()):
            if not job.only or source.name in job.only:
                client = folder / "clients" / source.name
                shutil.copytree(source, client, ignore=own)
                file = client / "client.toml"
                text = _changed(file.read_text(encoding="utf-8"), job.clients.get(source.name, {}))
                if source.name in job.secrets:
                    secret = f'secret = "{job.secrets[source.name]}"'
                    text = re.sub(r'^secret = ".*"', secret, text, count=1, flags=re.M)
                if self.limits and not job.own_limits:
                    text = with_limits(text, self.limits)
                file.write_text(text, encoding="utf-8")


def main() -> int:
    """Run the jobs with both checkouts, print the table, and say whether anything differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--only", nargs="+", metavar="JOB", choices=[job.name for job in JOBS])
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep what the jobs wrote")
    parser.add_argument("--default-limits", action="store_true", help="of clients, in all jobs")
    parser.add_argument(
        "--only-results",
        type=float,
        nargs="?",
        const=1e-9,
        metavar="TOLERANCE",
        help="compare numbers of results alone; default tolerance: 1e-9",
    )
    options = parser.parse_args()
    tolerance = options.only_results
    about_limits = tolerance is None or options.default_limits
    jobs = [
        job
        for job in JOBS
        if (job.name in options.only if options.only else about_limits or not job.own_limits)
    ]
    with tempfile.TemporaryDirectory() as passing:
        kept = (options.keep or Path(passing)).resolve()
        before, after = (
            _side(path.resolve(), kept, by_default=options.default_limits)
            for path in (options.before, options.after)
        )
        shutil.rmtree(after.folder, ignore_errors=True)
        if tolerance is not None:
            return _say_furthest(jobs, before, after, tolerance)
        found = [(job.name, *row) for job in jobs for row in _compared(job, before, after)]
    differing = [row for row in found if row[2]]
    print(f"\n{len(found) - len(differing)} the same, {len(differing)} differ")
    for job, what, difference in differing:
        print(f"{job}, {what}: {difference}")
    return 1 if differing else 0


def _side(checkout: Path, kept: Path, *, by_default: bool) -> Side:
    name = _as_file_name(str(checkout))
    if by_default:
        return Side(checkout=checkout, folder=kept / f"{name}-default-limits")
    return Side(checkout=checkout, folder=kept / name, limits=open_limits(checkout))


def _compared(job: Job, before: Side, after: Side) -> Iterator[tuple[str, str]]:
    """Each thing compared, and how it differs: empty if it does not."""
    for what, difference in differences(before.done(job), after.done(job)):
        print(f"{job.name:<38}{what:<26}{'DIFFERS' if difference else 'same'}", flush=True)
        yield what, difference


def _say_furthest(jobs: list[Job], before: Side, after: Side, tolerance: float) -> int:
    """Print how far the results of each job are apart, and say whether any are too far."""
    furthest = {}
    for job in jobs:
        apart = furthest_apart(before.done(job), after.done(job))
        for what, by, where in apart:
            print(f"{job.name:<38}{what:<26}{by:<10.1e}{where if by else ''}", flush=True)
        nothing = ("nothing", math.inf, "no results on either side")
        furthest[job.name] = max(apart, key=lambda one: one[1], default=nothing)
    print(f"\nThe largest difference of each job; up to {tolerance:g} is allowed")
    for name, (what, by, where) in furthest.items():
        said = f"{what}: {where}" if by else "none"
        print(f"{name:<38}{by:<10.1e}{'' if by <= tolerance else 'TOO FAR '}{said}")
    return 1 if any(by > tolerance for _, by, _ in furthest.values()) else 0


def _changed(text: str, changes: dict[str, str]) -> str:
    for old, new in changes.items():
        if old not in text:
            raise ValueError(f"the demo no longer says {old!r}")
        text = text.replace(old, new, 1)
    return text


def _fedopl(checkout: Path, folder: Path, commands: tuple[str, ...]) -> str:
    """What these commands print, errors included."""
    settings = {
        "PYTHONPATH": str(checkout / "src"),
        "PYTHONUNBUFFERED": "1",  # so that output and errors come in the order of the program
        "OPENBLAS_NUM_THREADS": "1",
        "COLUMNS": "100",
    }
    ended = subprocess.run(  # noqa: S603
        [sys.executable, "-c", COMMANDS],
        cwd=folder,
        env=os.environ | settings,
        input="\n".join(commands),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return f"{ended.stdout}[the process ended with {ended.returncode}]\n"


def _as_file_name(name: str) -> str:
    return re.sub(r"\W+", "-", name).strip("-")


def differences(before: Path, after: Path) -> Iterator[tuple[str, str]]:
    """What two folders of a job have in common: each thing's name, and how it first differs."""
    groups: dict[str, list[Path]] = {}
    for folder in (before, after):
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            files = groups.setdefault(_group(path.relative_to(folder)), [])
            files.extend({path.relative_to(folder)} - set(files))
    for what in sorted(filter(None, groups)):
        found = (_difference(before / path, after / path, path) for path in sorted(groups[what]))
        yield what, next(filter(None, found), "")


def _group(path: Path) -> str:
    """Under which name a file is listed."""
    if path.name == "ledger.jsonl":
        return "bytes of every answer"
    if "exchanges" in path.parts:
        return "journal"
    if path.parts[2:4] == ("scores", "rows"):
        return ""  # copies of tables, named after where and when they were written
    if "scores" in path.parts:
        return "what clients keep"
    if path.parts[0] == "clients":
        return "clients' files"
    if len(path.parts) == 1 and path.suffix == ".toml":
        return "studies"
    return path.name


def _difference(before: Path, after: Path, path: Path) -> str:
    """How a file differs, or nothing."""
    if not (before.exists() and after.exists()):
        return f"{path}: only {'before' if before.exists() else 'after'}"
    if before.suffix == ".npz":
        return _difference_of_arrays(before, after, path)
    if before.suffix in READERS:
        old, new = (READERS[before.suffix](file) for file in (before, after))
        for number, (was, now) in enumerate(zip_longest(old, new, fillvalue="(nothing)"), 1):
            if was != now:
                pairs = enumerate(zip_longest(was, now))
                equal = next(place for place, (one, other) in pairs if one != other)
                shown = slice(max(0, equal - 60), equal + 140)
                return f"{path}, line {number}: {was[shown]!r} became {now[shown]!r}"
        return ""
    return "" if before.read_bytes() == after.read_bytes() else f"{path}: other bytes"


def _difference_of_arrays(before: Path, after: Path, path: Path) -> str:
    with np.load(before) as old, np.load(after) as new:
        for name in sorted({*old, *new}):
            if name not in old or name not in new:
                return f"{path}: the array {name} only {'before' if name in old else 'after'}"
            was, now = old[name], new[name]
            if (was.dtype, was.shape) != (now.dtype, now.shape):
                return f"{path}: {name} was {was.dtype}{was.shape}, is {now.dtype}{now.shape}"
            if was.tobytes() != now.tobytes():
                return f"{path}: other numbers in {name}"
    return ""


def _text(path: Path) -> list[str]:
    """Lines, without when they were written."""
    time = r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d(\.\d+)?)?(\+00:00|Z| UTC)?"
    return re.sub(time, "TIME", path.read_text(encoding="utf-8")).splitlines()


def _visible(path: Path) -> list[str]:
    """The text of an HTML page, a line for each piece."""
    text = re.sub(r"<(style|script)\b.*?</\1>", "", "\n".join(_text(path)), flags=re.DOTALL)
    pieces = html.unescape(re.sub(r"<[^>]*>", "\n", text)).splitlines()
    return [piece.strip() for piece in pieces if piece.strip()]


def _json(path: Path) -> list[str]:
    """The lines of a JSON file; a run's hashes of files that hold times are left out."""
    if path.name != "run.json":
        return _text(path)
    content = json.loads(path.read_text(encoding="utf-8"))
    content.pop("finished")
    content["files"] = list(content["files"])  # their content is compared anyway
    return json.dumps(content, indent=1).splitlines()


READERS: dict[str, Callable[[Path], list[str]]] = {
    ".csv": _text,
    ".html": _visible,
    ".json": _json,
    ".jsonl": _text,
    ".toml": _text,
    ".txt": _text,
}


if __name__ == "__main__":
    sys.exit(main())
