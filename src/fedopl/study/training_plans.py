"""How policies that are learned in rounds are trained."""

from typing import Annotated, Literal

from pydantic import Field

from fedopl.base.validation import Checked


class TrainingPlan(Checked):
    """Settings of the iterative oracles (Algorithms 1 and 2)."""

    rounds: int = Field(default=40, ge=1, le=100_000, description="how often clients are asked")
    local_steps: int = Field(
        default=20, ge=1, description="number of steps that a client takes in each round"
    )
    batch_size: int = Field(default=128, ge=1, description="number of rows in each step")
    clients_per_round: int | None = Field(
        default=None,
        ge=1,
        description="number of clients drawn for each round, by seed and round; default: all",
    )
    rate: float = Field(
        default=0.5,
        gt=0,
        le=2,
        description="length of a step, as a share of the largest stable step",
    )
    proximal: float = Field(
        default=0.0, ge=0, description="FedProx: strength of the pull to the round's start"
    )
    momentum: float = Field(default=0.0, ge=0, lt=1, description="momentum of the server's steps")
    average: Literal["steps", "rounds"] = Field(
        default="steps", description="average all local steps, or only the ends of the later rounds"
    )


class NetworkPlan(Checked):
    """A network beside the exact linear policy, and how it is trained."""

    hidden: tuple[Annotated[int, Field(ge=1, le=1024)], ...] = Field(
        default=(64, 64), min_length=1, max_length=8, description="units of each hidden layer"
    )
    loss: Literal["regression", "softmax"] = Field(
        default="regression",
        description="regression: squared error of predicted scores; softmax: the value of a "
        "softened policy",
    )
    rounds: int = Field(default=30, ge=2, le=10_000, description="how often clients are asked")
    local_steps: int = Field(
        default=32,
        ge=1,
        le=10_000,
        description="number of batches of a client's rows in each round, fewer if a batch would "
        "have under 16 rows; each is one step",
    )
    rate: float = Field(default=0.003, gt=0, le=1, description="length of a step")
    patience: int = Field(
        default=8,
        ge=1,
        description="number of rounds without a lower held-out loss before training stops",
    )
