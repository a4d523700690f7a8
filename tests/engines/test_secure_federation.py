"""A real federation, of three SuperNodes with TLS, that adds up under masks."""

import subprocess
import sys
from pathlib import Path

import pytest

import fedopl
from fedopl.base.labels import GLOBAL
from fedopl.demo.hospitals import three_hospitals

pytest.importorskip("flwr")

FEDOPL = Path(sys.executable).with_name("fedopl")
MOST_SECONDS = 240
MORE = """
[policy]
kind = "finite"
[declared]
overlap = 0.1
[privacy]
epsilon = 8
aggregation = "secure"
outcome = [0, 30]
[privacy.ranges]
age = [30, 98]
severity = [0, 12]
kidney_function = [8, 120]
"""


def command(*arguments):
    done = subprocess.run(
        [FEDOPL, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=MOST_SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow_law
def test_totals_alone_are_read_over_a_real_federation(tmp_path):
    study = three_hospitals().write(tmp_path / "hospitals")
    clients = study.parent / "clients"
    text = study.read_text().replace("values = true", "")
    text = text.replace("share = 0.3", "share = 0\ndescribe = false")  # a trip less, of seconds
    study.write_text(text + MORE + command("keys", clients))
    command("flower", "up", study, "--clients", clients, "--out", tmp_path / "run")
    run = fedopl.load_run(tmp_path / "run")
    assert run.statistics.clients == [GLOBAL]
    assert run.rounds[-1].trip + 1 == 3  # keys, first sums, candidates
    assert all(len(one.answered) == 3 for one in run.rounds)
    for name in run.mixture:
        assert "MaskedSums" in (clients / name / "ledger.jsonl").read_text()
