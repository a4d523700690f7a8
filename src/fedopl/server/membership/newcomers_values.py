"""The value of the policy to each newcomer, on the newcomer's held-out rows."""

from collections.abc import Collection
from dataclasses import replace

from fedopl.base.labels import GLOBAL
from fedopl.policies.policy import Policy
from fedopl.results.membership import Valuation, policy_digest
from fedopl.results.model_doubts import why_in_doubt
from fedopl.results.record import Record
from fedopl.results.value_tables import LEARNED, TABLES, AnyPolicyTable
from fedopl.server.aggregate.setting import Setting
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.policy_comparison import Candidates, Evaluated


def valued_by(
    newcomers: Collection[str], policy: Policy, setting: Setting, conversation: Conversation
) -> tuple[Valuation, Evaluated]:
    """The values of the policy, the best arm and other arms, and all that newcomers said of it."""
    study = setting.study
    candidates = Candidates(study, {})
    candidates.policies[LEARNED] = policy
    candidates.add_arms(setting)
    candidates.add_by_fold(setting, LEARNED)
    told = candidates.evaluate(
        setting,
        conversation,
        LEARNED,
        describe=study.evaluation.describe,
        asked=newcomers,
    )
    valued = Valuation(
        policy=policy_digest(policy),
        **{kind: getattr(told, kind) for kind in TABLES},
        in_doubt=tuple(name for name in sorted(newcomers) if _is_in_doubt(name, told, setting)),
    ).by_clients(newcomers if told.gains.rows else ())
    return valued, told


def _is_in_doubt(name: str, told: Evaluated, setting: Setting) -> bool:
    """Whether a client's answers put the models in doubt, judged as if it were the only client."""
    alone = Record(
        study=setting.study,
        policy=None,
        chosen=LEARNED,
        best_arm=setting.best_arm,
        mixture={name: 1.0},
        rows={name: setting.rows[name]},
        **{kind: _of_all(getattr(told, kind), name) for kind in TABLES},
        rounds=(),
        statistics=setting.statistics,
        described=told.described,
        fitted={client: fit for client, fit in told.fitted.items() if client == name},
    )
    return why_in_doubt(alone) is not None


def _of_all(table: AnyPolicyTable, name: str) -> AnyPolicyTable:
    """The rows of this client, labelled as those of all clients together."""
    return type(table)(replace(row, client=GLOBAL) for row in table if row.client == name)
