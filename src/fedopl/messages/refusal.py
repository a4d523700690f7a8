"""Why a client does not answer: the code that is sent, and its meaning with a remedy."""

import enum
from dataclasses import dataclass

from fedopl.messages.message import Message, message


class RefusalCode(enum.Enum):
    """Why a client does not answer. Only the code is sent."""

    MALFORMED = 1
    WRONG_VERSION = 2
    WRONG_STUDY = 3
    TOO_FEW_ROWS = 4
    SMALL_CELLS = 5
    TOO_MANY_PARAMETERS = 6
    VALUES_FORBIDDEN = 7
    ASKED_ALREADY = 8
    NORM_TOO_LARGE = 9
    NOT_FINITE = 10
    UNSEEN_ACTION = 11
    NO_PROPENSITIES = 12
    NOTHING_TO_SAY = 13
    FAILED = 14
    NOT_IN_STUDY = 15
    BEYOND_DECLARED = 16
    ROWS_ON_DISK = 17
    WRONG_PROPENSITIES = 21
    UNSCORED_DECISIONS = 22
    WRONG_KEY = 24
    WRONG_ROSTER = 25
    NO_ROSTER = 26
    WRONG_SURVIVORS = 27
    WRONG_SHARES = 28
    IMPOSSIBLE_SUMS = 29
    PRIVACY_SPENT = 30
    NOT_APPROVED = 31
    TOO_FEW_MEMBERS = 36
    TOO_MANY_STUDIES = 37
    ONLY_LEARNS = 38


@message
class Refusal(Message, code=64):
    """A client does not answer; a code says why."""

    reason: RefusalCode


@dataclass(frozen=True)
class Refused:
    """One reason: what happened, and what to do."""

    why: str
    remedy: str


REFUSALS: dict[RefusalCode, Refused] = {
    RefusalCode.MALFORMED: Refused(
        "it could not read the question",
        "Let both sides install the same version of fedopl.",
    ),
    RefusalCode.WRONG_VERSION: Refused(
        "it speaks another version of the protocol",
        "Let both sides install the same version of fedopl.",
    ),
    RefusalCode.WRONG_STUDY: Refused(
        "it agreed to another study, or to another version of this one",
        "Send it this study again, and compare the hashes at the end of this report.",
    ),
    RefusalCode.TOO_FEW_ROWS: Refused(
        "it has fewer rows than it takes part with",
        "Wait for more rows, or let the client lower its own limit 'minimum_rows'.",
    ),
    RefusalCode.SMALL_CELLS: Refused(
        "only a few of its rows are behind the answer",
        "Wait for more rows, or let the client lower its own limit 'minimum_cell'.",
    ),
    RefusalCode.TOO_MANY_PARAMETERS: Refused(
        "it has too few rows for sums of so many terms",
        "Use fewer features or terms, or let the client raise its own limit 'parameter_share'.",
    ),
    RefusalCode.VALUES_FORBIDDEN: Refused(
        "it does not report what policies are worth",
        "Agree on reporting values before the study (requires.values), or do without this "
        "client's values.",
    ),
    RefusalCode.NORM_TOO_LARGE: Refused(
        "its numbers were larger than it is willing to send",
        "Look for a column in the wrong unit, or let the client raise its own limit.",
    ),
    RefusalCode.NOT_FINITE: Refused(
        "its numbers overflowed or were not numbers",
        "Look for a column of extreme values, and for rewards that are not numbers.",
    ),
    RefusalCode.UNSEEN_ACTION: Refused(
        "it never took one of the actions, and the study asks such clients to refuse",
        "Let them borrow or mask instead (nuisances.unseen), or leave the client out.",
    ),
    RefusalCode.NO_PROPENSITIES: Refused(
        "the study needs known propensities, and its table has none",
        "Add the column, or let propensities be estimated (nuisances.propensity).",
    ),
    RefusalCode.NOTHING_TO_SAY: Refused(
        "it has no rows that could answer the question",
        "Wait for more rows; where some are held out, hold out a larger share.",
    ),
    RefusalCode.FAILED: Refused(
        "something went wrong on its side",
        "Let it run `fedopl check` or `fedopl preview`; no error text crosses the door.",
    ),
    RefusalCode.ROWS_ON_DISK: Refused(
        "its rows are on disk, and this question is answered from memory only",
        "Use another oracle than csoaa-vw, a tree on a grid, outcome models from sums (ridge or "
        'ols), no network, or let it keep its rows in memory (rows = "memory" in its client.toml).',
    ),
    RefusalCode.BEYOND_DECLARED: Refused(
        "it has rows beyond what the study declares of every row",
        "Let it run `fedopl check`, which names the bound; correct the rows, or agree on a bound "
        "that holds (declared.reward, declared.overlap).",
    ),
    RefusalCode.NOT_IN_STUDY: Refused(
        "this study has no such question",
        "Let both sides install the same version of fedopl.",
    ),
    RefusalCode.WRONG_PROPENSITIES: Refused(
        "its known propensities contradict how often the actions were taken",
        "Let it run `fedopl check`, which names the action; each row needs the probability of the "
        "action that was taken, not that of treatment.",
    ),
    RefusalCode.UNSCORED_DECISIONS: Refused(
        "policies decide on actions that it has no score for, so their values would rest on a "
        "selected part of its rows",
        "Let it run `fedopl check`, which names the actions and what brings them back; or leave "
        "these actions out of the study.",
    ),
    RefusalCode.WRONG_KEY: Refused(
        "its key is not the one that the study registers for it",
        "Let it run `fedopl keys`, and write what that prints into the study; or let it restore "
        "the secret that its registered key follows from.",
    ),
    RefusalCode.WRONG_ROSTER: Refused(
        "the clients whose sums were to be added to its own are not those of the study, or "
        "their keys are not signed",
        "Let the server run the study as it was agreed on; if rows of a client changed since it "
        "began, agree on a new one.",
    ),
    RefusalCode.NO_ROSTER: Refused(
        "it has no record of the clients whose sums are added to its own",
        "Its store (scores/) was deleted or its rows changed since the study began: restore it, "
        "or agree on a new study.",
    ),
    RefusalCode.WRONG_SURVIVORS: Refused(
        "it helps to remove masks from only one sum over the clients that answered, and this "
        "is a different one: more clients are said to be lacking than was agreed, the client "
        "itself is said to be lacking, it gave no answer to this sum, or other clients were "
        "named before",
        "Let the server resume the run that it began, with the same answers; a run that begins "
        "anew needs the same clients, or a new study (another name or seed).",
    ),
    RefusalCode.WRONG_SHARES: Refused(
        "shares that it was to reveal were not sealed for it, for this sum and for this purpose",
        "Let the server resume the run with the shares that clients sent. If that does not "
        "help, a client sent wrong shares: agree on a new study.",
    ),
    RefusalCode.IMPOSSIBLE_SUMS: Refused(
        "its own sums are larger than is possible for its number of rows within the declared "
        "ranges",
        "This is an error of the program or the machine, not of the rows, which were bounded "
        "before: let it run `fedopl preview`, install the program anew, and tell its authors.",
    ),
    RefusalCode.PRIVACY_SPENT: Refused(
        "together with earlier studies with differential privacy on its rows, this study "
        "would spend more than its owner allows (epsilon under [limits])",
        "Agree on a study with a smaller epsilon, or let the client raise its limit; `fedopl "
        "privacy --clients` says beforehand what is left.",
    ),
    RefusalCode.NOT_APPROVED: Refused(
        "its owner approves questions by hand, and did not approve this one",
        "Ask its owner, who decides on the page of `fedopl node --serve`; once the question is "
        "approved there, resume the run. If time was short, give a longer --deadline.",
    ),
    RefusalCode.ASKED_ALREADY: Refused(
        "it has answered this study's questions of this kind, each once, and this is another one",
        "Resume the run that it answered, with the same clients on the same kind of processor; a "
        "run with other clients, or on another kind of processor, asks other questions and needs "
        "a new study (another seed will do).",
    ),
    RefusalCode.ONLY_LEARNS: Refused(
        "it only learns: held-out rows would have too few of every action (minimum_cell)",
        "Wait for more rows, hold out a larger share, or let values be cross-fitted.",
    ),
    RefusalCode.TOO_MANY_STUDIES: Refused(
        "it has answered as many studies as its owner allows",
        "Let the client raise its own limit 'studies', toward which each split of the rows counts.",
    ),
    RefusalCode.TOO_FEW_MEMBERS: Refused(
        "it adds up other clients' answers, and too few of them answered",
        "Its ledger says who did not, and why; let these answer, or let it lower its own limit "
        "'minimum_members'.",
    ),
}
SILENT = Refused("it did not answer", "Check that it was running and could be reached.")
REJECTED_REMEDY = "Its answer was not used. Let the client check its version and its data."


def in_words(reason: str) -> Refused:
    """A reason as in `Record.refusals`, in words."""
    if reason in RefusalCode.__members__:
        return REFUSALS[RefusalCode[reason]]
    if reason == "no answer":
        return SILENT
    return Refused(f"its answer was {reason}", REJECTED_REMEDY)
