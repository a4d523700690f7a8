"""The RAND Health Insurance Experiment: six sites, plans assigned at random, spending in year 1.

Plans were assigned by family. The file is statsmodels' copy of the public-domain data (Cameron &
Trivedi 2005). It has no family numbers. Members of a family share site, plan, income and family
size, so people who share all four are treated as one family.
"""

import csv
import math
from importlib.resources import files
from importlib.util import find_spec

from fedopl.base.errors import OptionError
from fedopl.demo.example import Example, ExampleClient, ExampleTable

SITES = {
    "1": "dayton",
    "2": "seattle",
    "3": "fitchburg",
    "4": "franklin",
    "5": "charleston",
    "6": "georgetown",
}
NUMBERS = {
    "age": "xage",
    "income": "income",
    "chronic_diseases": "disea",
    "mental_health": "mhi",
    "family_size": "num",
}
YES_OR_NO = {"female": "female", "physical_limitation": "physlm"}
HEALTH = {"hlthg": "good", "hlthf": "fair", "hlthp": "poor"}

RAND_STUDY = """\
# The RAND Health Insurance Experiment as a federation of its six sites: which coinsurance, for
# whom, keeps medical spending low? (Low spending is not good health: see docs/rand-hie.md.)
name = "RAND health insurance experiment"
seed = 1

[outcome]
column = "log_spending"        # log(1 + dollars of medical spending in year 1)
direction = "lower"

[action]
column = "plan"                # the share of a bill, in percent, that the family paid
levels = [0, 25, 50, 95, "deductible"]   # Dayton had no 95, Seattle had no 50

[features]
age = "number"
income = "number"
chronic_diseases = "number"
mental_health = "number"
family_size = "number"
female = ["no", "yes"]
physical_limitation = ["no", "yes"]
health = ["excellent", "good", "fair", "poor"]

[rows]
group = "family"               # families were drawn together, so their members go together

[nuisances]
unseen = "borrow"              # what a site never tried is judged by the others' outcome model

[evaluation]
share = 0.3

[requires]
values = true
"""

CLIENT = """\
# Public rows need no secret: so everybody who tries this gets the same results.
secret = "b236fa1a04fe6446449366cb8d04e7165b9070fc103c0f75d229c85fc536f3c0"

[data]
file = "year1.csv"

[limits]
minimum_cell = 0               # the data are public: no rare answer has to be held back
"""
DAYTON = f"""\
{CLIENT}
# Dayton recorded most of its individual deductible plan as a coinsurance of 100 %. Take this
# section out, and 100 is refused as an action that nobody agreed on.
[labels.plan]
100 = "deductible"
"""


def rand_hie() -> Example:
    """The study, and each site's people in their first year."""
    if find_spec("statsmodels") is None:
        raise OptionError("demo: rand-hie needs statsmodels; pip install 'fedopl[examples]'")
    people = _first_year()
    clients = {
        name: ExampleClient(
            settings=DAYTON if name == "dayton" else CLIENT,
            file_name="year1.csv",
            rows=_table([person for person in people if person["site"] == number]),
        )
        for number, name in SITES.items()
    }
    return Example(study=RAND_STUDY, clients=clients)


def _first_year() -> list[dict[str, str]]:
    source = files("statsmodels.datasets.randhie") / "src" / "randhie.csv"
    try:
        text = source.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise OptionError("demo: rand-hie needs statsmodels 0.15 or newer, which has it") from None
    people = csv.DictReader(text.splitlines())
    return [person for person in people if float(person["year"]) == 1]


def _table(people: list[dict[str, str]]) -> ExampleTable:
    families = {key: number for number, key in enumerate(dict.fromkeys(map(_family, people)))}
    return {
        "family": [families[_family(person)] for person in people],
        **{name: [float(person[own]) for person in people] for name, own in NUMBERS.items()},
        **{
            name: ["yes" if float(person[own]) >= 0.5 else "no" for person in people]
            for name, own in YES_OR_NO.items()
        },
        "health": [_health(person) for person in people],
        "plan": [_plan(person) for person in people],
        "log_spending": [round(math.log1p(float(person["meddol"])), 4) for person in people],
    }


def _family(person: dict[str, str]) -> tuple[str, ...]:
    return tuple(person[column] for column in ("site", "plan", "income", "num"))


def _plan(person: dict[str, str]) -> str:
    """The person's plan, named by its coinsurance.

    The individual deductible plan has no coinsurance of its own, except at Dayton.
    """
    coinsurance = int(float(person["coins"]))
    return "deductible" if float(person["idp"]) and not coinsurance else str(coinsurance)


def _health(person: dict[str, str]) -> str:
    rated = [label for column, label in HEALTH.items() if float(person[column]) == 1]
    return rated[0] if rated else "excellent"
