"""The two contracts, a sentence each: what is promised to whoever owns rows."""

from fedopl.study.study import Study

EXACT = (
    "Contract exact: only the sums that `fedopl preview` lists leave, exactly, to a server that "
    "keeps to the study"
)
MASKED = "; masks hide the numbers of single clients"


def contract_of(study: Study) -> str:
    """The contract of this study, in one sentence."""
    plan = study.privacy
    if plan is None:
        return f"{EXACT}."
    masks = MASKED if plan.is_secure else ""
    return (
        "Contract private: every number that leaves is a sum of bounded parts of rows with noise, "
        f"charged to a lifetime account of the rows, here with ε = {plan.epsilon:g}{masks}."
    )
