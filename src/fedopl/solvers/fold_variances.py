"""How much larger variances are where each fold is valued by what was learned without it.

Folds are not independent: each contributes to the policies that value the others. The less stable
these policies are, the more it contributes. So variances exceed those of independent rows. By up to
what factor, was measured on made-up rows, with and without effects, with and without groups: by a
number below times how often two versions decide differently. For differences, versions of either
side count.
"""

import numpy as np

from fedopl.base.arrays import FloatArray

# Linear policies change little by little; trees and candidates are others all at once.
OF_VALUES, OF_JUMPS, OF_DIFFERENCES = 1.5, 2.0, 2.0


def enlarged(covariances: FloatArray, apart: FloatArray, *, are_linear: bool) -> FloatArray:
    """Covariances by which values, and differences of two, have variances as large as they should.

    `apart` says how often two versions of either of two candidates decide differently. Contrasts of
    more than two values have no meaning then.
    """
    factors = np.full_like(apart, OF_DIFFERENCES)
    np.fill_diagonal(factors, OF_VALUES if are_linear else OF_JUMPS)
    wider = 1 + factors * apart
    if wider.max() == 1:
        return covariances
    own = np.diagonal(covariances)
    differences = own + own[:, None] - 2 * covariances
    own = np.diagonal(wider) * own
    return np.asarray((own + own[:, None] - wider * differences) / 2)
