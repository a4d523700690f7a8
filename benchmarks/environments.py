"""Makes an environment for every peer, if possible; otherwise records the reason.

    python benchmarks/environments.py [FOLDER]

Peers contradict each other and pin old versions, so each has an environment of its own. If one
cannot be made, FOLDER/PEER.absent holds the reason, which the tables report.
"""

import re
import subprocess
import sys
import venv
from pathlib import Path

PEERS = {
    "vowpalwabbit": ("vowpalwabbit>=9.10", "numpy>=2.1"),
    # 0.17 does not compile where it has no wheel; 0.16 does, in a minute.
    "econml": ("econml==0.16.0",),
    # It needs torch, and the newest brings gigabytes for graphics cards.
    "obp": ("obp>=0.4.1", "torch==2.13.0"),
    "contextualbandits": ("contextualbandits>=0.3.23", "costsensitive>=0.1.2.13"),
    "pystreed": ("pystreed>=1.4", "numpy>=2.1"),
    # What is on PyPI does not compile; its repository does.
    "maq": ("maq @ git+https://github.com/grf-labs/maq.git#subdirectory=python-package",),
}

# What is used of each; some have an empty package on top, which can be imported whatever is broken.
MODULES = {
    "vowpalwabbit": "vowpalwabbit",
    "econml": "econml.dr",
    "obp": "obp.policy",
    "contextualbandits": "contextualbandits.offpolicy",
    "pystreed": "pystreed",
    "maq": "maq",
}


def make(folder: Path, peer: str, requirements: tuple[str, ...]) -> str:
    """Install one peer; an empty text, or why that failed."""
    home, absent = folder / peer, folder / f"{peer}.absent"
    python = home / "bin" / "python"
    absent.unlink(missing_ok=True)
    if _works(python, peer):
        return ""
    venv.create(home, clear=True, with_pip=True)
    _installed(python, "--upgrade", "pip>=25.1")  # an older one chooses what does not compile
    done = _installed(python, *requirements)
    if done.returncode == 0 and _works(python, peer):
        return ""
    reason = f"absent: {_last_error(done.stderr)}"
    absent.write_text(f"{reason}\n", encoding="utf-8")
    return reason


def _installed(python: Path, *what: str) -> subprocess.CompletedProcess[str]:
    command = [python, "-m", "pip", "install", "--quiet", *what]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _works(python: Path, peer: str) -> bool:
    if not python.exists():
        return False
    done = subprocess.run(
        [python, "-c", f"import {MODULES[peer]}"], capture_output=True, check=False
    )
    return done.returncode == 0


def _last_error(text: str) -> str:
    """What pip said last, without addresses and paths."""
    errors = re.findall(r"^\s*(?:ERROR|error): (.+)$", text, re.M) or ["cannot be imported"]
    return re.sub(r"\S*/\S+", "…", errors[-1]).replace("|", "/")[:120]


def main() -> None:
    """All peers, one after the other."""
    folder = Path(*sys.argv[1:2] or [Path(__file__).parents[1] / ".venv-peers"])
    for peer, requirements in PEERS.items():
        print(f"{peer}: {make(folder, peer, requirements) or 'ready'}", flush=True)


if __name__ == "__main__":
    main()
