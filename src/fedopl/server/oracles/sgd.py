"""`csoaa-sgd`: the paper's FedOPL. Rounds of local steps, averaged by the mixture."""

from fedopl.base.seeds import generator_for
from fedopl.messages.combining import combined
from fedopl.messages.learning.policy_steps import ImprovePolicy
from fedopl.policies.linear import LinearPolicy
from fedopl.server.aggregate.setting import Setting
from fedopl.server.exchange.conversation import Conversation
from fedopl.solvers.averaged_rounds import AveragedRounds, on_raw_features
from fedopl.solvers.linear_solvers import never_taken
from fedopl.study.mixture import renormalised
from fedopl.study.study import Study


def learn(setting: Setting, conversation: Conversation) -> LinearPolicy:
    """Algorithm 1, on standardised features; the result is a mean over rounds."""
    study, plan = setting.study, setting.study.linear.training
    centre, scale = setting.statistics.standardisation(setting.weights)
    loss = setting.statistics.loss(setting.weights)
    shape = (study.n_actions, study.n_features + 1)
    rounds = AveragedRounds(shape, plan.rounds, plan.momentum, plan.average)
    for turn in range(plan.rounds):
        query = ImprovePolicy(round=turn, parameters=rounds.parameters, centre=centre, scale=scale)
        clients = sampled(setting, turn)
        answers = conversation.each(query, clients)  # θ_c, c ∈ S ⊂ C
        conversation.require_quorum(answers, of=len(clients))
        weights = renormalised(setting.weights, answers.keys())
        rounds.move_to(combined(answers, weights).parameters)  # Σ λ_c θ_c / Σ λ_c
        reached = on_raw_features(rounds.parameters, centre, scale)
        conversation.measure(answers.exchange, loss=loss(reached))
    learned = rounds.best(centre, scale, loss)
    unknown = setting.statistics.unknown(setting.weights)
    return LinearPolicy(never_taken(learned, unknown), study.actions, study.features)


def exchanges(study: Study) -> int:
    """One exchange for each round."""
    return study.linear.training.rounds


def sampled(setting: Setting, turn: int) -> list[str]:
    """The clients of one round: all, or a sample of the plan's size, drawn by seed and round."""
    names = sorted(setting.weights)
    wanted = setting.study.linear.training.clients_per_round
    if wanted is None or wanted >= len(names):
        return names
    rng = generator_for(setting.study.seed, purpose=f"clients of round {turn}")
    return sorted(rng.choice(names, wanted, replace=False).tolist())
