"""How policies that are learned in rounds are trained."""

from typing import Annotated, Literal

from pydantic import Field

from fedopl.base.validation import Checked


class TrainingPlan(Checked):
    """How the iterative oracles go about it (Algorithms 1 and 2)."""

    rounds: int = Field(default=40, ge=1, le=100_000, description="how often clients are asked")
    local_steps: int = Field(default=20, ge=1, description="a client takes in each round")
    batch_size: int = Field(default=128, ge=1, description="rows behind each step")
    clients_per_round: int | None = Field(
        default=None, ge=1, description="drawn by seed and round; all of them if not said"
    )
    rate: float = Field(
        default=0.5, gt=0, le=2, description="length of a step, of the largest stable one"
    )
    proximal: float = Field(default=0.0, ge=0, description="FedProx: pull to the round's start")
    momentum: float = Field(default=0.0, ge=0, lt=1, description="of the server's steps")
    average: Literal["steps", "rounds"] = Field(
        default="steps", description="of all local steps, or only of where the later rounds ended"
    )


class NetworkPlan(Checked):
    """A network beside the exact linear policy, and how it is trained."""

    hidden: tuple[Annotated[int, Field(ge=1, le=1024)], ...] = Field(
        default=(64, 64), min_length=1, max_length=8, description="units of each hidden layer"
    )
    loss: Literal["regression", "softmax"] = Field(
        default="regression",
        description="squares of what is missed of scores, or the value of a softened policy",
    )
    rounds: int = Field(default=30, ge=2, le=10_000, description="how often clients are asked")
    local_steps: int = Field(
        default=32,
        ge=1,
        le=10_000,
        description="batches of a client's rows in each round, a step for each",
    )
    rate: float = Field(default=0.003, gt=0, le=1, description="length of a step")
    patience: int = Field(
        default=8, ge=1, description="rounds without a lower held-out loss before it stops"
    )
