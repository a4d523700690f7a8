"""The share of noise in a single client's result, if its values were read separately."""

import numpy as np

from fedopl.report.words.numbers import percent
from fedopl.report.words.policy_labels import SO_FAR, valued_clients
from fedopl.results.record import Record
from fedopl.results.value_tables import LOGGING
from fedopl.study.private.private_setting import PrivateSetting


def noise_at_clients(record: Record) -> str:
    """A sentence on noise in clients' gains; empty if none was read separately under masks."""
    plan = record.study.privacy
    if plan is None or not plan.values_apart:
        return ""
    shares = [noise_share(record, client) for client in valued_clients(record)]
    least, most = percent(min(shares)), percent(max(shares))
    made = most if least == most else f"{least} to {most}"
    return (
        " Each client added all of the noise of the promise to its own values. The intervals "
        f"include it: {made} of the variance of gains over {SO_FAR} is noise."
    )


def noise_share(record: Record, client: str) -> float:
    """The share of noise in the variance of the learned policy's gain over the logging policy."""
    setting = PrivateSetting(record.study)
    gain = next(
        row.estimate for row in record.gains.rows if (row.against, row.client) == (LOGGING, client)
    )
    names = list(dict.fromkeys(row.policy for row in record.values.rows))
    contrast = np.zeros(len(names))
    contrast[names.index(record.chosen)] = 1.0
    contrast[names.index(LOGGING)] = -1.0
    deviation = setting.scales.half_range * setting.deviation("values apart") / gain.n_rows
    noise = deviation**2 * float(contrast @ setting.noise_of_scores @ contrast)
    return min(noise / gain.standard_error**2, 1.0)
