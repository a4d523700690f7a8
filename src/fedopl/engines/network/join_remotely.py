"""Clients join a finished run over a network: the server has its folder, clients their rows."""

from collections.abc import Collection
from pathlib import Path

from fedopl.base.errors import StorageError, StudyError
from fedopl.engines.join_and_leave import check_newcomers
from fedopl.results.files.run_folder import load_record
from fedopl.results.record import Record
from fedopl.study.joining_later import study_with
from fedopl.study.mixture import Given
from fedopl.study.study import Study

# Shares in a file are rounded, so they may differ from computed ones by this much.
_AS_WRITTEN = 1e-6


def run_to_join(folder: Path, out: Path) -> Record:
    """The run in this folder; refused if the result would be written to the same folder."""
    if folder.resolve() == out.resolve():
        raise StorageError(f"{out}: is the run itself, which stays as it is; choose another folder")
    return load_record(folder)


def study_to_agree_to(
    run: Record, agreed: Study, newcomers: Collection[str]
) -> tuple[Study, dict[str, float]]:
    """The study that newcomers are asked about, and their shares if its mixture gives shares.

    `agreed` is the newcomers' copy of the study. It must be the study of the run. If the mixture
    gives shares, `agreed` must also have those of the newcomers.
    """
    check_newcomers(run, newcomers)
    before = run.study.before_screening
    given = agreed.mixture.shares if isinstance(agreed.mixture, Given) else {}
    shares = {name: given[name] for name in newcomers if name in given}
    expected = study_with(before, newcomers, shares, run.rows)
    as_before = agreed.model_copy(update={"mixture": before.mixture})
    if as_before != before or not _is_as_written(expected, agreed):
        raise StudyError(
            "study: it is not that of the run that is joined: take study.toml from the run's "
            "folder; where its mixture gives shares, add the newcomer's and shrink the others' in "
            "proportion"
        )
    return run.study.model_copy(update={"mixture": agreed.mixture}), shares


def _is_as_written(expected: Study, agreed: Study) -> bool:
    """Whether the mixtures are the same, up to rounding of shares."""
    first, second = expected.mixture, agreed.mixture
    if not (isinstance(first, Given) and isinstance(second, Given)):
        return first == second
    apart = [first.shares.get(name, 2.0) - share for name, share in second.shares.items()]
    return len(first.shares) == len(apart) and max(map(abs, apart)) <= _AS_WRITTEN
